"""In a worker of a fleet: telling whoever started it what happens, doing what it says, and ending when it is gone."""

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
from longshore.cli.telling import teller
from longshore.cli.watching import COUNTED, every
from longshore.domain.notes import Note

COUNTS_S: Final = 0.2
WANTS: Final = "wants"  # the line that asks for a share


class Orders:
    """The jobs that this worker is handed, a share at a time; a line each, and `null` when no more will come."""

    def __init__(self, call: Call) -> None:
        self._output = call.output
        self._shares: deque[Sequence[str]] = deque()
        self._last = False
        self._first = threading.Event()
        self.wake: Callable[[], None] = lambda: None  # whoever waits for more

    def begin(self) -> bool:
        """Wait for the first share; tell whether there is one. Before that there may not even be a depot."""
        self._first.wait()
        return bool(self._shares)

    def hear(self, line: bytes | None) -> None:
        """Take one line; None is the end of them, with or without a word."""
        share = json.loads(line) if line else None
        if share is None:
            self._last = True
        else:
            self._shares.append(share)
        self._first.set()
        self.wake()

    def take(self) -> Sequence[str] | None:
        """Give the next share and ask for one more; nothing: none came yet; None: no more will."""
        if not self._shares:
            return None if self._last else ()
        share = self._shares.popleft()
        self._output.record(WANTS, {})
        return share


def drain_when_orphaned(hear: Callable[[bytes | None], None] = lambda _: None) -> None:
    """Hear what we are told; when whoever started us is gone, or says so by closing the pipe, end in good order."""

    before = signal.getsignal(signal.SIGTERM)

    def watch() -> None:
        for line in _lines():
            hear(line)
        hear(None)
        while signal.getsignal(signal.SIGTERM) is before:  # the worker has not begun to listen
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _lines() -> Iterator[bytes]:
    """Read lines as they come; not from sys.stdin, whose lock would be held at the interpreter's end."""
    rest = b""
    while block := os.read(0, 65_536):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines


@contextmanager
def counted_notes(call: Call) -> Iterator[Callable[[Note], None]]:
    """Tell what is only counted in one line some times a second, the rest as it happens."""
    counts: Counter[str] = Counter()
    shown: set[str | None] = set()  # large ones: somebody watches them go on, and must see them end
    lock, tell = threading.Lock(), teller(call, results=False)

    def flush() -> None:
        with lock:
            facts = dict(counts)
            counts.clear()
        if facts:
            call.output.record("counts", facts)

    def listen(note: Note) -> None:
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
