"""State that the routes share: one depot's ledger and store, the limits, and the state of the running process."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from longshore.domain.kinds import Status
from longshore.domain.model import Job, Micros, Scope
from longshore.domain.policy.tokens import Token
from longshore.domain.run_events import RunEvent
from longshore.domain.settings import HostsSettings
from longshore.ledger import Ledger
from longshore.ledger.queries import listing, lookup
from longshore.ledger.queries.listing import ArtifactFilter, JobFilter, Page
from longshore.store import Store
from longshore.web.costly_reads import CostlyReads
from longshore.web.cursors import Cursors
from longshore.web.dashboard.arrivals import Arrivals
from longshore.web.dashboard.rates import Rates
from longshore.web.job_waits import JobWaits
from longshore.web.security.rate_limit import Throttle
from longshore.web.security.shares import Shares
from longshore.web.server_options import ServerOptions

T = TypeVar("T")


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
    first_until: float = math.inf  # by the monotonic clock
    first_always: bool = False  # also if tokens exist
    wrong: Throttle | None = None
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    sign_ins: Throttle | None = None
    streams: Shares = field(init=False)
    waits: Shares = field(init=False)
    requests: Shares = field(init=False)
    strangers: Counter[str] = field(default_factory=Counter)  # bodies without a token that are being read, by address
    job_waits: JobWaits = field(init=False)
    costly: CostlyReads = field(init=False)
    reads: dict[tuple[str, str], float] = field(
        default_factory=dict
    )  # who read which artifact, and when that was noted
    ticks: dict[Scope, float] = field(default_factory=dict)  # when this process last reported progress, by scope
    moving: dict[str, tuple[int, int | None]] = field(
        default_factory=dict
    )  # bytes done and in total, by job running in this process
    cursors: Cursors = field(init=False)
    arrivals: Arrivals = field(init=False)
    rates: Rates = field(default_factory=Rates)

    def __post_init__(self) -> None:
        self.cursors = Cursors.of(self.ledger)
        self.streams = Shares(self.settings.streams_per_token, "open event streams")
        self.waits = Shares(self.settings.waits_per_token, "requests that wait for a job")
        self.requests = Shares(self.settings.requests_per_token, "requests at a time")
        self.job_waits = JobWaits(self._job, self.closing)
        self.costly = CostlyReads(self.ledger)
        self.arrivals = Arrivals(self.ledger)

    async def job_page(self, token: Token, wanted: JobFilter, after: str | None, limit: int) -> Page[Job]:
        """Return a page of jobs after a cursor of this tenant, and the next cursor."""
        scope = token.scope
        edge = None if after is None else str(self.cursors.read(scope, after))
        page = await self.search(token, wanted, listing.jobs, scope, wanted, after=edge, limit=limit)
        return Page(page.items, self.next_cursor(scope, page.next))

    async def search(
        self, token: Token, wanted: JobFilter | ArtifactFilter, verb: Callable[..., T], *args: Any, **kw: Any
    ) -> T:
        """Run a list's query: one with a filter may read many rows, and counts as costly."""
        if wanted.reads_many():
            return await self.costly.run(token.root_id, verb, *args, **kw)
        return await self.ledger.read_async(verb, *args, **kw)

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
        """Add the transfer progress to a job that a worker of this process runs; newer than in the ledger."""
        if job["status"] != Status.PROCESSING or (moved := self.moving.get(job["job_id"])) is None:
            return job
        done, total = moved
        percent = min(99, done * 100 // total) if total else None
        return job | {"progress": percent, "bytes_done": done, "bytes_total": total}

    async def _job(self, scope: Scope, job_id: str) -> Job:
        return await self.ledger.read_async(lookup.job, scope, job_id)
