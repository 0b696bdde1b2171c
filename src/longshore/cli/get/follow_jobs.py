"""The bar of `get` counts jobs that other processes end: another `get`, `run` or a service works on the same ledger.

A run hears only of its own jobs. While a display is shown, the ledger is asked every few seconds which of the jobs of
this `get` are over; those without an event of this run were ended elsewhere. The ids are kept, not only a number, so
that an event that comes after its row was read moves the job from one count to the other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from longshore.cli.output.progress import ENDINGS, every
from longshore.domain.kinds import TERMINAL, Status
from longshore.ledger.queries.due_work import standings

if TYPE_CHECKING:
    from longshore.cli.options import Call
    from longshore.cli.output.progress import ProgressCounts
    from longshore.depot import Depot
    from longshore.domain.run_events import Listener, RunEvent

FOLLOW_S: Final = 2.0
MOST: Final = 10_000  # jobs in one look: a list of a million must not keep the ledger busy


class FollowedJobs:
    """The jobs of one `get` that are not over, and those that other processes ended."""

    def __init__(self, depot: Depot, score: ProgressCounts) -> None:
        self._depot, self._score = depot, score
        self._open: dict[str, None] = {}  # in the order in which they are looked up
        self._elsewhere: set[str] = set()
        self._lock = threading.Lock()

    def listener(self, listen: Listener) -> Listener:
        """Return a listener that passes events on and notes which jobs were planned and which ended here."""

        def hear(note: RunEvent) -> None:
            if note.job_id is not None:
                self._take(note.kind, note.job_id, note.facts.get("status"))
            listen(note)

        return hear

    def _take(self, kind: str, job_id: str, status: str | None) -> None:
        with self._lock:
            if kind == "planned" and status is not None and Status(status) not in TERMINAL:
                self._open[job_id] = None
            elif kind in ENDINGS:
                self._open.pop(job_id, None)
                self._elsewhere.discard(job_id)
                self._score.elsewhere = len(self._elsewhere)

    def look(self) -> None:
        """Count the jobs that ended elsewhere."""
        with self._lock:
            job_ids = list(islice(self._open, MOST))
        jobs = self._depot.ledger.read(standings, self._depot.scope, job_ids) if job_ids else {}
        with self._lock:
            for job_id in job_ids:
                if job_id not in self._open:  # its event came meanwhile
                    continue
                del self._open[job_id]
                if job_id in jobs and jobs[job_id].status in TERMINAL:
                    self._elsewhere.add(job_id)
                else:
                    self._open[job_id] = None  # at the end: the next look begins with the others
            self._score.elsewhere = len(self._elsewhere)

    @contextmanager
    def running(self, call: Call) -> Iterator[None]:
        """Look every few seconds during the block, if there is a display."""
        if call.json or call.verbosity < 0:
            yield
            return

        def look() -> None:
            with suppress(Exception):  # a ledger that does not answer is reported by the run
                self.look()

        with every(FOLLOW_S, look):
            yield
