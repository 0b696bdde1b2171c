"""Query, cancel and retry methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from longshore.depot.change_feed import AsyncFeed, Feed
from longshore.depot.depot_context import DepotContext, in_thread
from longshore.depot.runner import Runner
from longshore.domain.model import Artifact, Job, Planned, Scope
from longshore.errors import BadInput
from longshore.ledger.queries.history import FailureGroup, Timeline
from longshore.ledger.queries.listing import ArtifactFilter, JobFilter, Page
from longshore.ledger.queries.runs import Run, runs
from longshore.ledger.records import CancelResult

T = TypeVar("T")
PAGE: Final = 1_000


class Queries:
    """Queries the ledger, cancels and retries."""

    def __init__(self, depot: DepotContext, runner: Runner) -> None:
        self._depot, self._runner = depot, runner

    async def status(self, *, scope: Scope | None = None) -> dict[str, int]:
        """Count the jobs of each status."""
        counts = await in_thread(self._depot.ledger.counts, scope or self._depot.scope)
        return {status.value: count for status, count in counts.items()}

    async def jobs(
        self, wanted: JobFilter | None = None, *, scope: Scope | None = None, limit: int | None = None
    ) -> list[Job]:
        """List jobs, newest first; all matches unless there is a limit."""
        _check_filter(wanted, JobFilter)
        return await in_thread(self._all, self._depot.ledger.jobs, scope or self._depot.scope, wanted, limit)

    async def artifacts(
        self, wanted: ArtifactFilter | None = None, *, scope: Scope | None = None, limit: int | None = None
    ) -> list[Artifact]:
        """List artifacts, newest first; all matches unless there is a limit."""
        _check_filter(wanted, ArtifactFilter)
        return await in_thread(self._all, self._depot.ledger.artifacts, scope or self._depot.scope, wanted, limit)

    async def show(self, job_id: str, *, scope: Scope | None = None) -> Timeline:
        """Return one job's history: events, claims, effects."""
        return await in_thread(self._depot.ledger.timeline, scope or self._depot.scope, job_id)

    async def failures(self, *, scope: Scope | None = None, run_id: str | None = None) -> list[FailureGroup]:
        """Group permanent failures by reason and host, of one run or of all."""
        return await in_thread(lambda: self._depot.ledger.failures(scope or self._depot.scope, run_id=run_id))

    async def runs(self, *, scope: Scope | None = None, limit: int | None = None) -> list[Run]:
        """List runs, newest first, with their counts, bytes, begin and end."""
        found: list[Run] = []
        after: int | None = None
        where = scope or self._depot.scope
        while limit is None or len(found) < limit:
            many = PAGE if limit is None else min(PAGE, limit - len(found))
            page = await self._depot.ledger.read_async(runs, where, after=after, limit=many)
            found += page.items
            if (after := page.next) is None:
                break
        return found

    async def cancel(self, wanted: JobFilter | Sequence[str], *, scope: Scope | None = None) -> CancelResult:
        """Cancel jobs by id or by filter: waiting ones at once, running ones as soon as their worker stops them."""
        where = scope or self._depot.scope
        result = await in_thread(self._depot.ledger.cancel, where, await self._ids(where, wanted))
        for worker in list(self._runner.workers):
            worker.cancel(result.requested)
        return result

    async def retry(self, wanted: JobFilter | Sequence[str], *, scope: Scope | None = None) -> list[Planned]:
        """Make a linked new job for each failed or canceled one, by id or by filter."""
        where = scope or self._depot.scope
        planned = await in_thread(self._depot.ledger.retry, where, await self._ids(where, wanted))
        self._runner.notify()
        return planned

    def feed(self, consumer: str, *, scope: Scope | None = None) -> AsyncFeed:
        """Return the change feed for a consumer: artifacts that are new, changed or gone since what it acknowledged."""
        return AsyncFeed(Feed(self._depot.ledger, scope or self._depot.scope, consumer))

    def feed_blocking(self, consumer: str, *, scope: Scope | None = None) -> Feed:
        """Return the change feed for a consumer, for code that is not async."""
        return Feed(self._depot.ledger, scope or self._depot.scope, consumer)

    async def _ids(self, scope: Scope, wanted: JobFilter | Sequence[str]) -> list[str]:
        if isinstance(wanted, JobFilter):
            return await in_thread(self._depot.ledger.matching_ids, scope, wanted)
        if isinstance(wanted, Mapping):
            _check_filter(wanted, JobFilter)
        return [wanted] if isinstance(wanted, str) else list(wanted)

    @staticmethod
    def _all(page_of: Callable[..., Page[T]], scope: Scope, wanted: Any, limit: int | None) -> list[T]:
        found: list[T] = []
        after: str | None = None
        while limit is None or len(found) < limit:
            page = page_of(scope, wanted, after=after, limit=PAGE if limit is None else min(PAGE, limit - len(found)))
            found += page.items
            if page.next is None:
                break
            after = page.next
        return found


def _check_filter(wanted: object, kind: type) -> None:
    if wanted is not None and not isinstance(wanted, kind):
        example = f"longshore.{kind.__name__}(…)"
        raise BadInput(f"a filter is a {kind.__name__}, not {type(wanted).__name__}", hint=f"write {example}")
