"""`get --workers N`: the parent plans, and hands what it has planned to its workers in shares, whoever wants one first.

Nothing depends on the workers: what they leave, because they died or because it has to wait, the parent does itself.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from longshore.cli.fleet import EXPECTED, Fleet, arguments, fleet
from longshore.cli.options import Call
from longshore.cli.program import WORK_LEFT, code_of_signal
from longshore.cli.watching import ENDINGS
from longshore.cli.workers import Worker
from longshore.depot.getting import facts_of
from longshore.domain.notes import Kind, Listener, Note
from longshore.domain.redaction import safe_url
from longshore.domain.states import TERMINAL, Status

if TYPE_CHECKING:
    from longshore.depot import Got

SHARE: Final = 256  # jobs at most: of more, the last one keeps a worker busy for long when the others have none
OUTSTANDING: Final = 2  # shares that a worker has: one in work, and one so that it need not wait for the next
_LAST: Final = b"null\n"
_KINDS: Final[dict[Status, Kind]] = {
    Status.COMPLETED: "completed",
    Status.SKIPPED: "held",
    Status.FAILED: "failed",
    Status.CANCELED: "canceled",
}


class Shares:
    """The jobs that are planned and not handed out, and the workers who want some."""

    def __init__(self, workers: Fleet) -> None:
        self._fleet = workers
        self._wanted = Counter(dict.fromkeys(workers.workers, OUTSTANDING))
        self._shares: deque[Sequence[str]] = deque()
        self._last = False
        self._lock = threading.Lock()
        self._ended: set[str | None] = set()  # jobs whose end somebody told
        self._tell: Listener = lambda _: None
        self._died = False  # one of them, without the chance to tell all that it did
        self.waited = False

    @property
    def stopped_by(self) -> str | None:
        """Name the signal that ended it all."""
        return self._fleet.stopped_by

    def attend(self, listen: Listener) -> Listener:
        """Hand on what the workers tell; give the listener for what is told here."""

        def hear(note: Note) -> None:
            if note.kind in ENDINGS:
                self._ended.add(note.job_id)
            listen(note)

        self._tell = self._fleet.attend(hear, self.wants)
        return self._tell

    def take(self, job_ids: Sequence[str]) -> None:
        """Let the workers have these jobs; each has as many of a batch as the others."""
        if self.stopped_by:
            raise click.exceptions.Exit(code_of_signal(self.stopped_by))
        size = min(SHARE, -(-len(job_ids) // (OUTSTANDING * len(self._fleet.workers))))
        with self._lock:
            self._shares.extend(job_ids[at : at + size] for at in range(0, len(job_ids), size))
            self._hand_out()

    def wants(self, worker: Worker) -> None:
        """Let a worker have one share more, as soon as there is one."""
        with self._lock:
            self._wanted[worker] += 1
            self._hand_out()

    def last(self) -> None:
        """Say that nothing more will come, when everything is handed out."""
        with self._lock:
            self._last = True
            self._hand_out()

    def finish(self) -> None:
        """Take no more, and wait until all workers have ended."""
        self.last()
        codes = self._fleet.wait()
        self.waited = WORK_LEFT in codes
        self._died = not EXPECTED.issuperset(codes)

    def tell_rest(self, got: Iterable[Got], at: int) -> None:
        """Tell what a worker did that was killed before it could say so."""
        for one in got if self._died else ():
            if one.status in TERMINAL and one.job_id not in self._ended:
                kind: Kind = "held" if one.held_before else _KINDS[one.status]
                facts = facts_of(one) | {"why": "told late: its worker died"}
                self._tell(Note(kind, at, job_id=one.job_id, url=safe_url(one.url or ""), facts=facts))

    def _hand_out(self) -> None:
        while self._shares and (worker := self._hungriest()):
            self._wanted[worker] -= 1
            worker.tell(json.dumps(self._shares.popleft()).encode() + b"\n")
        if self._last and not self._shares:
            self._last = False  # once is enough
            for worker in self._fleet.workers:
                worker.tell(_LAST)

    def _hungriest(self) -> Worker | None:
        worker, wanted = self._wanted.most_common(1)[0]
        return worker if wanted > 0 else None


@contextmanager
def shared(call: Call, how: dict[str, Any]) -> Iterator[Shares]:
    """Start the workers of a `get`, before anything is open."""
    words = [*arguments(call, how), "--named"]
    if not call.json and call.verbosity < 0:
        words.append("--counted")
    with fleet(words, how["workers"]) as workers:
        yield Shares(workers)
