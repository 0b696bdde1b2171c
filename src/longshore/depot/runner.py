"""Plan lists and run jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

from longshore.depot.depot_context import DepotContext, in_thread
from longshore.depot.garbage_collector import rare_collections
from longshore.depot.parse_items import in_batches
from longshore.depot.records import Added
from longshore.depot.signals import obeyed_by
from longshore.domain.identity.requests import Defaults
from longshore.domain.model import JobRequest, Planned, Scope
from longshore.domain.policy.redaction import safe_url
from longshore.domain.run_events import Listener, RunEvent
from longshore.ledger.operations.cancel_retry import is_waiting, wake_waiting
from longshore.ledger.operations.planning import Again, plan
from longshore.worker.ledger_wait_limit import answered
from longshore.worker.loop import Worker
from longshore.worker.replan_lost import plan_lost_again
from longshore.worker.run_types import RunOptions, RunResult
from longshore.worker.runtime import open_worker, release_dead_owners

REFUSALS_KEPT: Final = 1_000


class Runner:
    """Plans lists, runs jobs, and stops the workers of this process."""

    def __init__(self, depot: DepotContext) -> None:
        self._depot = depot
        self.on_note: Listener | None = None  # receives the notes of every run
        self.result = RunResult()  # of the last run
        self.workers: set[Worker] = set()

    async def add(
        self,
        items: Iterable[Any] | JobRequest,
        *,
        scope: Scope | None = None,
        again: Again = "never",
        run_id: str | None = None,
        on_note: Listener | None = None,
    ) -> Added:
        """Plan one item or a list: URLs, records, triples or requests. Existing jobs stay unchanged, unless their bytes are lost;
        invalid items are reported. `run_id`: the run of new jobs, unless their item names one.
        """
        defaults = Defaults(run_id)
        where, added = scope or self._depot.scope, Added()
        sizes = self._depot.store.sizes if self._depot.store.backend == "local" else None
        for given, refused in in_batches(items):
            requests = [defaults.applied(request) for request in given]
            added.refused_count += len(refused)
            added.refused += refused[: max(0, REFUSALS_KEPT - len(added.refused))]
            planned = await self._depot.ledger.write_async(plan, where, requests, again=again)
            if again != "always":
                planned = await in_thread(plan_lost_again, self._depot.ledger, sizes, where, requests, planned)
            fresh = sum(one.created for one in planned)
            added.new += fresh
            added.known += len(planned) - fresh
            self.tell_planned(requests, planned, on_note or self.on_note)
            self.notify()
        return added

    async def run(
        self,
        *,
        scope: Scope | None = None,
        job_ids: Sequence[str] | None = None,
        run_id: str | None = None,
        more: Callable[[], Sequence[str] | None] | None = None,
        job_types: Sequence[str] | None = None,
        forever: bool = False,
        max_wait_s: float | None = None,
        limit: int | None = None,
        on_note: Listener | None = None,
        details: bool = True,
        handle_signals: bool = False,
    ) -> RunResult:
        """Run jobs until none is left: all, those of one tenant and project, of one run, or named ones; at most `limit` jobs.

        `more` returns further job ids during the run (`notify` announces them); None: there will be no more.
        `details`: notes of results contain path and hash, not only the size.
        """
        if run_id is not None:
            scope = scope or self._depot.scope
        options = RunOptions(
            scope=scope,
            job_ids=None if job_ids is None else tuple(job_ids),
            run_id=run_id,
            job_types=None if job_types is None else tuple(job_types),
            forever=forever,
            max_wait_s=max_wait_s,
            limit=limit,
            more=more,
        )
        self._depot.runtime.liveness.hold()
        await answered(self._depot.ledger, max_wait_s, asyncio.ensure_future(release_dead_owners(self._depot.runtime)))
        await self._wake_offline(scope)
        # A permanent worker also syncs torrents; without torrent jobs the client is not contacted.
        async with (
            open_worker(self._depot.runtime, on_note or self.on_note, details=details) as tools,
            self._torrents(forever),
        ):
            worker = Worker(tools)
            self.result = worker.result
            self.workers.add(worker)
            try:
                with obeyed_by(worker, handle=handle_signals), rare_collections(ours=handle_signals):
                    result = await worker.run(options)
                if tools.watch.failure is not None:
                    raise tools.watch.failure
                return result
            finally:
                self.workers.discard(worker)
                self._depot.runtime.liveness.forsaken |= worker.forsaken

    async def _wake_offline(self, scope: Scope | None) -> None:
        """Make the jobs claimable that an offline run left waiting, also for another one: their bytes may be stored now."""
        ledger = self._depot.ledger
        if await ledger.read_async(is_waiting, scope, "offline"):
            await ledger.write_async(wake_waiting, scope, "offline")

    def _torrents(self, forever: bool) -> AbstractAsyncContextManager[None]:
        if not forever:
            return nullcontext()
        from longshore.worker.kinds.torrent.service_lifetime import syncing  # imported only where torrents are synced

        return syncing(self._depot.runtime)

    def notify(self) -> None:
        """Wake the workers of this process: there may be new jobs."""
        for worker in list(self.workers):
            worker.notify()

    def drain(self) -> None:
        """Drain the workers of this process."""
        for worker in list(self.workers):
            worker.drain()

    def abort(self) -> None:
        """Abort the workers of this process; durable state is kept."""
        for worker in list(self.workers):
            worker.abort()

    def tell_planned(
        self, requests: Sequence[JobRequest], planned: Sequence[Planned], listener: Listener | None
    ) -> None:
        """Report each planned job."""
        if listener is None:
            return
        now = self._depot.ledger.now()
        for request, one in zip(requests, planned, strict=True):
            facts = {"created": one.created, "status": one.status.value}
            listener(RunEvent("planned", now, self._depot.scope, one.job_id, safe_url(request.url or ""), facts))
