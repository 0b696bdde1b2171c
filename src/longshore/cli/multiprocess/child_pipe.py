"""The child side of `--workers`: report events to the parent, follow its commands, and drain when it exits."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from longshore.cli.options import Call
from longshore.cli.output.event_output import event_printer
from longshore.cli.output.progress import COUNTED, every
from longshore.domain.run_events import RunEvent

COUNTS_S: Final = 0.2
WANTS: Final = "wants"  # the line that requests a batch


class ParentCommands:
    """The jobs that the parent assigns to this worker, in batches; one JSON line each, and `null` after the last."""

    def __init__(self, call: Call) -> None:
        self._output = call.output
        self._shares: deque[Sequence[str]] = deque()
        self._last = False
        self._first = threading.Event()
        self.wake: Callable[[], None] = lambda: None  # called when a batch arrives

    def begin(self) -> bool:
        """Wait for the first batch and return whether there is one. The depot may not exist before that."""
        self._first.wait()
        return bool(self._shares)

    def hear(self, line: bytes | None) -> None:
        """Accept one line; None is the end of input, with or without a final `null`."""
        share = json.loads(line) if line else None
        if share is None:
            self._last = True
        else:
            self._shares.append(share)
        self._first.set()
        self.wake()

    def take(self) -> Sequence[str] | None:
        """Return the next batch and request another; empty: none has arrived yet; None: there are no more."""
        if not self._shares:
            return None if self._last else ()
        share = self._shares.popleft()
        self._output.record(WANTS, {})
        return share


def drain_when_orphaned(hear: Callable[[bytes | None], None] = lambda _: None) -> None:
    """Read the parent's commands; drain when the parent exits or closes the pipe."""

    before = signal.getsignal(signal.SIGTERM)

    def watch() -> None:
        for line in _lines():
            hear(line)
        hear(None)
        while signal.getsignal(signal.SIGTERM) is before:  # the worker has not installed its handler yet
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _lines() -> Iterator[bytes]:
    """Yield lines as they arrive; not from sys.stdin, whose lock would be held at interpreter exit."""
    rest = b""
    while block := os.read(0, 65_536):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines


@contextmanager
def counted_notes(call: Call) -> Iterator[Callable[[RunEvent], None]]:
    """Report events that are only counted as one summary line a few times a second, and all others at once."""
    counts: Counter[str] = Counter()
    shown: set[str | None] = set()  # large transfers: the parent displays them and needs their end
    lock, tell = threading.Lock(), event_printer(call, results=False)

    def flush() -> None:
        with lock:
            facts = dict(counts)
            counts.clear()
        if facts:
            call.output.record("counts", facts)

    def listen(note: RunEvent) -> None:
        if note.kind == "progress":
            shown.add(note.job_id)
        if note.kind in COUNTED and note.job_id not in shown:
            with lock:
                counts[note.kind] += 1
                counts["bytes"] += int(note.facts.get("size_bytes") or 0) if note.kind == "completed" else 0
        elif note.kind != "started":
            tell(note)
            if note.kind != "progress":
                shown.discard(note.job_id)

    with every(COUNTS_S, flush):
        yield listen
    flush()
