"""State that the routes share: one depot's ledger and store, the limits, and the state of the running process."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from longshore.domain.kinds import TERMINAL, Status
from longshore.domain.model import SECOND, Job, Micros, Scope
from longshore.domain.run_events import RunEvent
from longshore.domain.settings import HostsSettings
from longshore.ledger import Ledger
from longshore.ledger.queries import listing, lookup
from longshore.ledger.queries.listing import JobFilter, Page
from longshore.ledger.queries.throughput import arrivals
from longshore.store import Store
from longshore.web.cursors import Cursors
from longshore.web.dashboard.throughput import Slot, Window, slots
from longshore.web.security.rate_limit import Throttle
from longshore.web.server_options import ServerOptions

T = TypeVar("T")
SETTLED_S = 120  # slots older than this do not change any more: ids are given shortly before their commit


@dataclass(slots=True)
class Service:
    """One server's state. Everything durable is in the ledger."""

    ledger: Ledger
    store: Store
    settings: ServerOptions
    hosts: HostsSettings = field(default_factory=HostsSettings)
    depot: Any = None  # for uploads and torrents, which need more than ledger and store
    metrics: Any = None
    wake: Callable[[], None] = lambda: None  # wakes the workers of this process
    started_at: Micros = 0
    first_code: str | None = None  # of the first-run link; used once
    wrong: Throttle | None = None
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    streams: Counter[str] = field(default_factory=Counter)  # open event streams by token
    ticks: dict[Scope, float] = field(default_factory=dict)  # when this process last reported progress, by scope
    moving: dict[str, tuple[int, int | None]] = field(
        default_factory=dict
    )  # bytes done and in total, by job running in this process
    cursors: Cursors = field(init=False)
    _arrivals: dict[tuple[Scope, str], dict[Micros, tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cursors = Cursors.of(self.ledger)

    async def job_page(self, scope: Scope, wanted: JobFilter, after: str | None, limit: int) -> Page[Job]:
        """Return a page of jobs after a cursor of this tenant, and the next cursor."""
        edge = None if after is None else str(self.cursors.read(scope, after))
        page = await self.ledger.read_async(listing.jobs, scope, wanted, after=edge, limit=limit)
        return Page(page.items, self.next_cursor(scope, page.next))

    def next_cursor(self, scope: Scope, edge: str | None) -> str | None:
        """Encode the cursor of the next page, if there is one."""
        return None if edge is None else self.cursors.seal(scope, edge)

    def note(self, note: RunEvent) -> None:
        """Record progress in this process; called on the event loop."""
        if len(self.ticks) > 10_000:
            self.ticks.clear()
        self.ticks[note.scope] = time.monotonic()
        if note.job_id is None:
            return
        if note.kind == "progress" and len(self.moving) < 10_000:
            self.moving[note.job_id] = (int(note.facts["bytes_done"]), note.facts["bytes_total"])
        elif note.kind != "progress":
            self.moving.pop(note.job_id, None)

    def with_progress(self, job: dict[str, Any]) -> dict[str, Any]:
        """Add the transfer progress to a job that a worker of this process runs; it is not stored in the ledger."""
        if job["status"] != Status.PROCESSING or (moved := self.moving.get(job["job_id"])) is None:
            return job
        done, total = moved
        percent = min(99, done * 100 // total) if total else None
        return job | {"progress": percent, "bytes_done": done, "bytes_total": total}

    async def throughput(self, scope: Scope, window: Window) -> tuple[Micros, list[Slot]]:
        """Return the chart's slots; read only those that may have changed since the last call."""
        known = self._arrivals.setdefault((scope, window.name), {})
        if len(self._arrivals) > 1000:
            self._arrivals.pop(next(iter(self._arrivals)))
        newest = max(known, default=0)

        def since(now: Micros) -> Micros:
            start = max(window.start(now), newest - SETTLED_S * SECOND)
            return start - start % (window.slot_s * SECOND)

        now, rows = await self.ledger.read_async(arrivals, scope, since, window.slot_s)
        known.update((at, (files, size)) for at, files, size in rows)
        start = window.start(now)
        for at in [at for at in known if at < start]:
            del known[at]
        return now, slots(window, now, ((at, files, size) for at, (files, size) in known.items()))

    async def wait_for(self, scope: Scope, job_id: str, wait_s: float) -> Any:
        """Return a job when it has ended, or its current state after the timeout."""

        async def look() -> Any:
            return await self.ledger.read_async(lookup.job, scope, job_id)

        return await poll(look, lambda job: job.status in TERMINAL or self.closing.is_set(), wait_s)


async def poll(look: Callable[[], Awaitable[T]], enough: Callable[[T], bool], wait_s: float, step_s: float = 0.1) -> T:
    """Poll until a condition holds or the time is over; at least once."""
    until = time.monotonic() + wait_s
    while True:
        found = await look()
        left = until - time.monotonic()
        if left <= 0 or enough(found):
            return found
        await asyncio.sleep(min(step_s, left))
