"""Verbs that plan and work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

from longshore.depot.base import Base
from longshore.depot.records import Added
from longshore.depot.requests import in_batches
from longshore.depot.signals import obeyed_by, rare_collections
from longshore.domain.model import JobRequest, Planned, Scope
from longshore.domain.notes import Listener, Note
from longshore.domain.redaction import safe_url
from longshore.engine.crew import bury, crew
from longshore.engine.errands import Errand, Tally
from longshore.engine.lost import plan_lost_again
from longshore.engine.patience import answered
from longshore.engine.worker import Worker
from longshore.ledger.planning import Again, plan

REFUSALS_KEPT: Final = 1_000


class Working(Base):
    """Verbs that hand in work and do it."""

    on_note: Listener | None  # hears of every run
    tally: Tally  # of the last run
    _workers: set[Worker]

    async def add(
        self,
        items: Iterable[Any],
        *,
        scope: Scope | None = None,
        again: Again = "never",
        on_note: Listener | None = None,
    ) -> Added:
        """Plan a list: URLs, records, triples or requests. What is known stays as it is, unless its bytes are lost; what
        is bad is reported.
        """
        where, added = scope or self.scope, Added()
        sizes = self.store.sizes if self.store.backend == "local" else None
        for requests, refused in in_batches(items):
            added.refused_count += len(refused)
            added.refused += refused[: max(0, REFUSALS_KEPT - len(added.refused))]
            planned = await self.ledger.soon(plan, where, requests, again=again)
            if again != "always":
                planned = await self._thread(plan_lost_again, self.ledger, sizes, where, requests, planned)
            fresh = sum(one.created for one in planned)
            added.new += fresh
            added.known += len(planned) - fresh
            self._tell_planned(requests, planned, on_note or self.on_note)
            self.notify()
        return added

    async def run(
        self,
        *,
        scope: Scope | None = None,
        job_ids: Sequence[str] | None = None,
        more: Callable[[], Sequence[str] | None] | None = None,
        job_types: Sequence[str] | None = None,
        forever: bool = False,
        max_wait_s: float | None = None,
        limit: int | None = None,
        on_note: Listener | None = None,
        details: bool = True,
        handle_signals: bool = False,
    ) -> Tally:
        """Work until nothing is left: of everything, of one tenant and project, or of named jobs; at most `limit` jobs.

        `more` names further jobs while this goes on (`notify` says that there are some); None: no more will come.
        `details`: notes of results say where they are and which they are, not only how large.
        """
        errand = Errand(
            scope=scope,
            job_ids=None if job_ids is None else tuple(job_ids),
            job_types=None if job_types is None else tuple(job_types),
            forever=forever,
            max_wait_s=max_wait_s,
            limit=limit,
            more=more,
        )
        self.yard.liveness.hold()
        await answered(self.ledger, max_wait_s, asyncio.ensure_future(bury(self.yard)))
        # Torrents are kept in step by whoever stays; without torrent jobs that asks nobody for anything.
        async with crew(self.yard, on_note or self.on_note, details=details) as tools, self._torrents(forever):
            worker = Worker(tools)
            self.tally = worker.tally
            self._workers.add(worker)
            try:
                with obeyed_by(worker, handle=handle_signals), rare_collections(ours=handle_signals):
                    tally = await worker.run(errand)
                if tools.watch.failure is not None:
                    raise tools.watch.failure
                return tally
            finally:
                self._workers.discard(worker)
                self.yard.liveness.forsaken |= worker.forsaken

    def _torrents(self, forever: bool) -> AbstractAsyncContextManager[None]:
        if not forever:
            return nullcontext()
        from longshore.torrents.opening import syncing  # not everybody has torrents

        return syncing(self)

    def notify(self) -> None:
        """Wake the workers of this process: there may be something to do."""
        for worker in list(self._workers):
            worker.notify()

    def drain(self) -> None:
        """Let the workers of this process end soon and in good order."""
        for worker in list(self._workers):
            worker.drain()

    def abort(self) -> None:
        """Stop the workers of this process now; what is durable is kept."""
        for worker in list(self._workers):
            worker.abort()

    def _tell_planned(
        self, requests: Sequence[JobRequest], planned: Sequence[Planned], listener: Listener | None
    ) -> None:
        if listener is None:
            return
        now = self.ledger.now()
        for request, one in zip(requests, planned, strict=True):
            facts = {"created": one.created, "status": one.status.value}
            listener(Note("planned", now, self.scope, one.job_id, safe_url(request.url or ""), facts))
