"""`get --workers N`: the parent plans jobs and assigns them to its workers in batches, on request.

Nothing depends on the workers: the parent runs the jobs that they leave because a worker died or a job must wait.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from longshore.cli.multiprocess.processes import WorkerProcess
from longshore.cli.multiprocess.supervisor import EXPECTED, Supervisor, arguments, supervised
from longshore.cli.options import Call
from longshore.cli.output.progress import ENDINGS
from longshore.cli.run_command import WORK_LEFT, code_of_signal
from longshore.depot.get import ENDINGS as KINDS
from longshore.depot.get import facts_of
from longshore.domain.kinds import TERMINAL
from longshore.domain.policy.redaction import safe_url
from longshore.domain.run_events import Kind, Listener, RunEvent

if TYPE_CHECKING:
    from longshore.depot import Got

SHARE: Final = 256  # maximum; with larger batches the last one would keep one worker busy while the others idle
OUTSTANDING: Final = 2  # batches per worker: one in progress and one queued
_LAST: Final = b"null\n"


class Distributor:
    """The planned jobs that are not assigned yet, and the workers that requested a batch."""

    def __init__(self, workers: Supervisor) -> None:
        self._fleet = workers
        self._wanted = Counter(dict.fromkeys(workers.workers, OUTSTANDING))
        self._shares: deque[Sequence[str]] = deque()
        self._last = False
        self._lock = threading.Lock()
        self._ended: set[str | None] = set()  # jobs whose end was reported
        self._tell: Listener = lambda _: None
        self._died = False  # a worker was killed and may not have reported all its results
        self.waited = False

    @property
    def stopped_by(self) -> str | None:
        """Return the name of the signal that stopped the workers."""
        return self._fleet.stopped_by

    def attend(self, listen: Listener) -> Listener:
        """Forward the workers' events; return the listener for this process's events."""

        def hear(note: RunEvent) -> None:
            if note.kind in ENDINGS:
                self._ended.add(note.job_id)
            listen(note)

        self._tell = self._fleet.attend(hear, self.wants)
        return self._tell

    def take(self, job_ids: Sequence[str]) -> None:
        """Queue these jobs for the workers, in batches of equal size."""
        if self.stopped_by:
            raise click.exceptions.Exit(code_of_signal(self.stopped_by))
        size = min(SHARE, -(-len(job_ids) // (OUTSTANDING * len(self._fleet.workers))))
        with self._lock:
            self._shares.extend(job_ids[at : at + size] for at in range(0, len(job_ids), size))
            self._hand_out()

    def wants(self, worker: WorkerProcess) -> None:
        """Assign one more batch to a worker as soon as there is one."""
        with self._lock:
            self._wanted[worker] += 1
            self._hand_out()

    def last(self) -> None:
        """Send the end marker once all jobs are assigned."""
        with self._lock:
            self._last = True
            self._hand_out()

    def finish(self) -> None:
        """Accept no more jobs, and wait until all workers have exited."""
        self.last()
        codes = self._fleet.wait()
        self.waited = WORK_LEFT in codes
        self._died = not EXPECTED.issuperset(codes)

    def tell_rest(self, got: Iterable[Got], at: int) -> None:
        """Report the results of a worker that was killed before it could report them."""
        for one in got if self._died else ():
            if one.status in TERMINAL and one.job_id not in self._ended:
                kind: Kind = "held" if one.held_before else KINDS[one.status]
                facts = facts_of(one) | {"why": "told late: its worker died"}
                self._tell(RunEvent(kind, at, job_id=one.job_id, url=safe_url(one.url or ""), facts=facts))

    def _hand_out(self) -> None:
        while self._shares and (worker := self._hungriest()):
            self._wanted[worker] -= 1
            worker.tell(json.dumps(self._shares.popleft()).encode() + b"\n")
        if self._last and not self._shares:
            self._last = False  # send it only once
            for worker in self._fleet.workers:
                worker.tell(_LAST)

    def _hungriest(self) -> WorkerProcess | None:
        worker, wanted = self._wanted.most_common(1)[0]
        return worker if wanted > 0 else None


@contextmanager
def shared(call: Call, how: dict[str, Any]) -> Iterator[Distributor]:
    """Start the workers of a `get`, before the ledger is opened."""
    words = [*arguments(call, how), "--named"]
    if not call.json and call.verbosity < 0 and not how["directory"]:  # for -d the parent has to know which are done
        words.append("--counted")
    with supervised(words, how["workers"]) as workers:
        yield Distributor(workers)
