"""`run --workers N`: several worker processes on one depot, watched as one.

Each is a `longshore run` of its own whose notes come through a pipe. They live in sessions of their own, so that a
terminal's Ctrl-C does not reach them. The first signal closes their stdin, and they drain; they do the same when this
process dies. The second one is handed on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any, Final

from longshore.cli.options import Call
from longshore.cli.program import SOME_FAILED, UNEXPECTED, WORK_LEFT
from longshore.cli.run import code_of, counted, summarize
from longshore.cli.telling import teller
from longshore.cli.watching import COUNTED, every, watching
from longshore.domain.notes import Note

_PLACES: Final = ("depot", "ledger", "store", "tenant", "project")
COUNTS_S: Final = 0.2
POLL_S: Final = 0.1
_FACTS: Final = frozenset({"type", "schema", "ts", "job_id", "url"})


def run_fleet(call: Call, how: dict[str, Any]) -> int:
    """Start the workers, tell what they tell, and end when all have ended."""
    with call.ledger() as ledger:
        counts = counted(ledger, call)
        with watching(call, teller(call, results=False)) as (score, listen):
            score.total = counts["pending"] + counts["processing"] or None
            words = arguments(call, how) + ([] if call.json or call.verbosity > 0 else ["--counted"])
            stopped, codes = _work(words, how["workers"], _one_at_a_time(listen))
        summarize(call, counted(ledger, call), score)
    unexpected = [code for code in codes if code not in {0, SOME_FAILED, WORK_LEFT, 130, 143}]
    if unexpected:
        return unexpected[0] if unexpected[0] > 0 else UNEXPECTED
    return code_of(score.failed, stopped_by=stopped, left=WORK_LEFT in codes)


def arguments(call: Call, how: dict[str, Any]) -> list[str]:
    """Write down for one worker what this process was told."""
    words = [sys.executable, "-m", "longshore", "run", "--json", "--while-stdin"]
    for name, value in call.flags.items():
        if name in _PLACES:
            words += [f"--{name}", str(value)]
        elif isinstance(value, dict):
            words += _section(name, value)
        elif name != "offline":
            words += ["--set", f"{name}={value}"]
    if how["offline"]:
        words.append("--offline")
    if how["forever"]:
        words.append("--forever")
    if how["all_tenants"]:
        words.append("--all-tenants")
    if how["max_wait"] is not None:
        words += ["--max-wait", str(how["max_wait"])]
    for one in how["types"]:
        words += ["--type", one]
    return words


def _section(name: str, keys: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for key, value in keys.items():
        if (name, key) == ("network", "allow") and isinstance(value, list):
            for cidr in value:
                words += ["--allow-net", cidr]
        else:
            words += ["--set", f"{name}.{key}={value}"]
    return words


def _work(words: list[str], count: int, listen: Callable[[Note], None]) -> tuple[str | None, list[int]]:
    workers = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        for _ in range(count)
    ]
    with _signals_to(workers) as seen:
        deaf: list[OSError] = []
        readers = [threading.Thread(target=_read, args=(one.stdout, listen, deaf), daemon=True) for one in workers]
        for reader in readers:
            reader.start()
        while talking := [reader for reader in readers if reader.is_alive()]:  # a worker's pipe ends when it does
            if deaf:
                _let_drain(workers)
            talking[0].join(POLL_S)
        codes = [worker.wait() for worker in workers]
    if deaf:
        raise deaf[0]
    return (seen[0] if seen else None), codes


@contextmanager
def _signals_to(workers: list[subprocess.Popen[bytes]]) -> Iterator[list[str]]:
    seen: list[str] = []

    def hand_on(number: int, _frame: object) -> None:
        for worker in workers:
            if seen and worker.poll() is None:
                worker.send_signal(number)
        if not seen:
            _let_drain(workers)
        seen.append(signal.Signals(number).name)

    before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _let_drain(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        if worker.stdin is not None:
            worker.stdin.close()


def _one_at_a_time(listen: Callable[[Note], None]) -> Callable[[Note], None]:
    lock = threading.Lock()

    def listen_alone(note: Note) -> None:
        with lock:
            listen(note)

    return listen_alone


@contextmanager
def counted_notes(call: Call) -> Iterator[Callable[[Note], None]]:
    """In a worker of a fleet: tell what is only counted in one line some times a second, the rest as it happens."""
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


def _read(stream: IO[bytes] | None, listen: Callable[[Note], None], deaf: list[OSError]) -> None:
    """Hand on what a worker tells; when nobody listens any more, its pipe must not fill up."""
    assert stream is not None
    for line in stream:
        facts = json.loads(line)
        if facts["type"] == "summary" or deaf:
            continue
        try:
            listen(note_of(facts))
        except OSError as error:
            deaf.append(error)


def note_of(line: dict[str, Any]) -> Note:
    """Read a JSON line back into the note it was."""
    at = datetime.fromisoformat(line["ts"])
    rest = {name: value for name, value in line.items() if name not in _FACTS}
    micros = int(at.timestamp()) * 1_000_000 + at.microsecond
    return Note(line["type"], micros, job_id=line.get("job_id"), url=line.get("url"), facts=rest)


def drain_when_orphaned() -> None:
    """In a worker of a fleet: when whoever started us is gone, end in good order."""

    before = signal.getsignal(signal.SIGTERM)

    def watch() -> None:
        while os.read(0, 65_536):  # not sys.stdin: its lock would be held at the interpreter's end
            pass
        while signal.getsignal(signal.SIGTERM) is before:  # the worker has not begun to listen
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
