"""Supervise several worker processes on one depot: `run --workers N`, and the parts that `get --workers N` shares.

Each is a separate `longshore run` whose events arrive through a pipe. The first signal closes their stdin, and they
drain; they do the same when this process dies. The second signal is forwarded to them.
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

from longshore.cli.commands.run import code_of, count_once, counted, follow_total, summarize, without_ledger
from longshore.cli.multiprocess.child_pipe import WANTS
from longshore.cli.multiprocess.processes import WorkerProcess, start
from longshore.cli.options import Call
from longshore.cli.output.event_output import event_printer
from longshore.cli.output.progress import show_progress
from longshore.cli.run_command import SOME_FAILED, UNEXPECTED, WORK_LEFT
from longshore.domain.run_events import REFUSED, Listener, RunEvent
from longshore.errors import Unavailable
from longshore.worker.run_types import RunResult

_PLACES: Final = ("depot", "ledger", "store", "tenant", "project")
POLL_S: Final = 0.1
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
EXPECTED: Final = frozenset({0, SOME_FAILED, WORK_LEFT, 130, 143})  # exit codes of an orderly exit
_FACTS: Final = frozenset({"type", "schema", "ts", "job_id", "url"})


def run_fleet(call: Call, how: dict[str, Any], jobs: dict[str, int]) -> int:
    """Start the workers, forward their events, and return when all have exited."""
    words = arguments(call, how) + ([] if call.json or call.verbosity > 0 else ["--counted"])
    words += [] if how["run_id"] is None else ["--run", how["run_id"]]
    with supervised(words, how["workers"]) as workers:
        with show_progress(call, event_printer(call, results=False)) as (score, listen):
            workers.attend(listen)
            with follow_total(call, score, jobs, lambda: count_once(call, how["run_id"])):
                codes = workers.wait()
    left = WORK_LEFT in codes
    stopped_by = workers.stopped_by or (REFUSED if score.refused else None)
    try:
        with call.ledger() as ledger:
            summarize(call, counted(ledger, call, how["run_id"]), score)
    except Unavailable as away:
        return without_ledger(call, away, RunResult(failed=score.failed, stopped_by=stopped_by, left=left))
    unexpected = [code for code in codes if code not in EXPECTED]
    if unexpected:
        return unexpected[0] if unexpected[0] > 0 else UNEXPECTED
    return code_of(score.failed, stopped_by=stopped_by, left=left)


def arguments(call: Call, how: dict[str, Any]) -> list[str]:
    """Build a worker's command line from the options of this process."""
    words = ["run", "--json", "--while-stdin"]
    for name, value in call.flags.items():
        if name in _PLACES:
            words += [f"--{name}", str(value)]
        elif isinstance(value, dict):
            words += _section(name, value)
        elif name != "offline":
            words += ["--set", f"{name}={value}"]
    words += [f"--{name.replace('_', '-')}" for name in ("offline", "forever", "all_tenants") if how.get(name)]
    if how.get("workers", 1) > 1:
        words += ["--set", f"transfer.max_rate_shares={how['workers']}"]
    if how["max_wait"] is not None:
        words += ["--max-wait", str(how["max_wait"])]
    for one in how.get("types", ()):
        words += ["--type", one]
    if call.verbosity > 1:
        words.append("-" + "v" * call.verbosity)  # also for its log
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


class Supervisor:
    """The worker processes: their events and exit codes."""

    def __init__(self, workers: Sequence[WorkerProcess]) -> None:
        self.workers = workers
        self.stopped_by: str | None = None  # the first signal that this process received
        self._readers: list[threading.Thread] = []
        self._deaf: list[OSError] = []  # errors of the listener; afterwards events are dropped

    def attend(self, listen: Listener, wants: Callable[[WorkerProcess], None] = lambda _: None) -> Listener:
        """Forward the workers' events; return the listener for events of this process."""
        alone = _one_at_a_time(listen)
        for worker in self.workers:
            self._readers.append(threading.Thread(target=self._read, args=(worker, alone, wants), daemon=True))
            self._readers[-1].start()
        return alone

    def wait(self) -> list[int]:
        """Wait until all have exited and return their codes."""
        while talking := [one for one in self._readers if one.is_alive()]:  # a worker's pipe ends when it does
            if self._deaf:
                self.let_drain()
            talking[0].join(POLL_S)
        codes = [worker.wait() for worker in self.workers]
        if self._deaf:
            raise self._deaf[0]
        return codes

    def let_drain(self) -> None:
        """Drain all workers."""
        for worker in self.workers:
            worker.let_drain()

    @property
    def over(self) -> bool:
        """Return whether all have exited."""
        return all(worker.code is not None for worker in self.workers)

    def obey(self, number: int) -> None:
        """Handle a signal: the first drains, the others are forwarded."""
        if self.stopped_by is None:
            self.let_drain()
        else:
            for worker in self.workers:
                worker.signal(number)
        self.stopped_by = self.stopped_by or signal.Signals(number).name

    def close(self) -> None:
        """Drain the remaining workers and wait until they have exited, after errors too."""
        self.let_drain()
        for worker in self.workers:
            if not self._readers:
                worker.tells.close()  # otherwise it could block on a full pipe
            worker.wait()

    def _read(self, worker: WorkerProcess, listen: Listener, wants: Callable[[WorkerProcess], None]) -> None:
        """Forward a worker's events; after a listener error keep reading, so that the pipe does not fill up."""
        for line in worker.tells:
            if not line.endswith(b"\n"):
                return  # it was killed in the middle of a line
            facts = json.loads(line)
            if facts["type"] == WANTS:
                wants(worker)
            elif facts["type"] != "summary" and not self._deaf:
                try:
                    listen(note_of(facts))
                except OSError as error:
                    self._deaf.append(error)


@contextmanager
def supervised(words: Sequence[str], count: int) -> Iterator[Supervisor]:
    """Start workers that follow this process's signals, and drain them at the end of the block."""
    workers = Supervisor(start(words, count))
    with _signals_to(workers):
        try:
            yield workers
        finally:
            workers.close()


@contextmanager
def _signals_to(workers: Supervisor) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread can install handlers
        yield
        return

    def hand_on(number: int, _frame: object) -> None:
        if workers.over:  # the signal is for this process: use the previous handler
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

    def listen_alone(note: RunEvent) -> None:
        with lock:
            listen(note)

    return listen_alone


def note_of(line: dict[str, Any]) -> RunEvent:
    """Parse a JSON line into a note."""
    at = datetime.fromisoformat(line["ts"])
    rest = {name: value for name, value in line.items() if name not in _FACTS}
    micros = int(at.timestamp()) * 1_000_000 + at.microsecond
    return RunEvent(line["type"], micros, job_id=line.get("job_id"), url=line.get("url"), facts=rest)
