"""Several worker processes on one depot, watched as one: `run --workers N`, and what `get --workers N` shares with it.

Each is a `longshore run` of its own whose notes come through a pipe. The first signal closes their stdin, and they drain;
they do the same when this process dies. The second one is handed on.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from longshore.cli.following import WANTS
from longshore.cli.options import Call
from longshore.cli.program import SOME_FAILED, UNEXPECTED, WORK_LEFT
from longshore.cli.run import code_of, counted, summarize
from longshore.cli.telling import teller
from longshore.cli.watching import watching
from longshore.cli.workers import Worker, start
from longshore.domain.notes import Listener, Note

_PLACES: Final = ("depot", "ledger", "store", "tenant", "project")
POLL_S: Final = 0.1
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
EXPECTED: Final = frozenset({0, SOME_FAILED, WORK_LEFT, 130, 143})  # codes of a worker that ended in good order
_FACTS: Final = frozenset({"type", "schema", "ts", "job_id", "url"})


def run_fleet(call: Call, how: dict[str, Any], jobs: dict[str, int]) -> int:
    """Start the workers, tell what they tell, and end when all have ended. No ledger is open meanwhile."""
    words = arguments(call, how) + ([] if call.json or call.verbosity > 0 else ["--counted"])
    with fleet(words, how["workers"]) as workers:
        with watching(call, teller(call, results=False)) as (score, listen):
            score.total = jobs["pending"] + jobs["processing"] or None
            workers.attend(listen)
            codes = workers.wait()
    with call.ledger() as ledger:
        summarize(call, counted(ledger, call), score)
    unexpected = [code for code in codes if code not in EXPECTED]
    if unexpected:
        return unexpected[0] if unexpected[0] > 0 else UNEXPECTED
    return code_of(score.failed, stopped_by=workers.stopped_by, left=WORK_LEFT in codes)


def arguments(call: Call, how: dict[str, Any]) -> list[str]:
    """Write down for one worker what this process was told."""
    words = ["run", "--json", "--while-stdin"]
    for name, value in call.flags.items():
        if name in _PLACES:
            words += [f"--{name}", str(value)]
        elif isinstance(value, dict):
            words += _section(name, value)
        elif name != "offline":
            words += ["--set", f"{name}={value}"]
    words += [f"--{name.replace('_', '-')}" for name in ("offline", "forever", "all_tenants") if how.get(name)]
    if how["max_wait"] is not None:
        words += ["--max-wait", str(how["max_wait"])]
    for one in how.get("types", ()):
        words += ["--type", one]
    if call.verbosity > 1:
        words.append("-" + "v" * call.verbosity)  # its log, too
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


class Fleet:
    """The workers, as one: what they tell and how they end."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = workers
        self.stopped_by: str | None = None  # the first signal that this process got
        self._readers: list[threading.Thread] = []
        self._deaf: list[OSError] = []  # why nobody listens any more

    def attend(self, listen: Listener, wants: Callable[[Worker], None] = lambda _: None) -> Listener:
        """Hand on what the workers tell; give the listener for whoever else has something to tell."""
        alone = _one_at_a_time(listen)
        for worker in self.workers:
            self._readers.append(threading.Thread(target=self._read, args=(worker, alone, wants), daemon=True))
            self._readers[-1].start()
        return alone

    def wait(self) -> list[int]:
        """Wait until all have ended; give their codes."""
        while talking := [one for one in self._readers if one.is_alive()]:  # a worker's pipe ends when it does
            if self._deaf:
                self.let_drain()
            talking[0].join(POLL_S)
        codes = [worker.wait() for worker in self.workers]
        if self._deaf:
            raise self._deaf[0]
        return codes

    def let_drain(self) -> None:
        """Let all of them end soon and in good order."""
        for worker in self.workers:
            worker.let_drain()

    @property
    def over(self) -> bool:
        """Tell whether all have ended."""
        return all(worker.code is not None for worker in self.workers)

    def obey(self, number: int) -> None:
        """Take a signal of ours: the first drains, the others are handed on."""
        if self.stopped_by is None:
            self.let_drain()
        else:
            for worker in self.workers:
                worker.signal(number)
        self.stopped_by = self.stopped_by or signal.Signals(number).name

    def close(self) -> None:
        """Leave no worker behind, whatever happened here."""
        self.let_drain()
        for worker in self.workers:
            if not self._readers:
                worker.tells.close()  # or it could wait for ever for a reader
            worker.wait()

    def _read(self, worker: Worker, listen: Listener, wants: Callable[[Worker], None]) -> None:
        """Hand on what a worker tells; when nobody listens any more, its pipe must not fill up."""
        for line in worker.tells:
            if not line.endswith(b"\n"):
                return  # it was killed in the middle of a word
            facts = json.loads(line)
            if facts["type"] == WANTS:
                wants(worker)
            elif facts["type"] != "summary" and not self._deaf:
                try:
                    listen(note_of(facts))
                except OSError as error:
                    self._deaf.append(error)


@contextmanager
def fleet(words: Sequence[str], count: int) -> Iterator[Fleet]:
    """Start workers that obey this process's signals, and are gone when the block is left."""
    workers = Fleet(start(words, count))
    with _signals_to(workers):
        try:
            yield workers
        finally:
            workers.close()


@contextmanager
def _signals_to(workers: Fleet) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only that one can
        yield
        return

    def hand_on(number: int, _frame: object) -> None:
        if workers.over:  # it is meant for us, who may still have something to do: as if we were not here
            signal.signal(number, before[number])
            os.kill(os.getpid(), number)
        else:
            workers.obey(number)

    before: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, hand_on)
    try:
        yield
    finally:
        for number in SIGNALS:
            signal.signal(number, before[number])


def _one_at_a_time(listen: Listener) -> Listener:
    lock = threading.Lock()

    def listen_alone(note: Note) -> None:
        with lock:
            listen(note)

    return listen_alone


def note_of(line: dict[str, Any]) -> Note:
    """Read a JSON line back into the note it was."""
    at = datetime.fromisoformat(line["ts"])
    rest = {name: value for name, value in line.items() if name not in _FACTS}
    micros = int(at.timestamp()) * 1_000_000 + at.microsecond
    return Note(line["type"], micros, job_id=line.get("job_id"), url=line.get("url"), facts=rest)
