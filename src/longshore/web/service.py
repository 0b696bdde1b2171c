"""What the routes share: one depot's ledger and store, the limits, and what is known of the running process."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from longshore.domain.model import SECOND, Micros, Scope
from longshore.domain.notes import Note
from longshore.domain.politeness import HostDefaults
from longshore.domain.states import TERMINAL, Status
from longshore.ledger import Ledger, lookup
from longshore.ledger.tokens import arrivals
from longshore.store import Store
from longshore.web.settings import ServeSettings
from longshore.web.throttle import Throttle
from longshore.web.throughput import Slot, Window, slots

T = TypeVar("T")
SETTLED_S = 120  # slots older than this do not change any more: ids are given shortly before their commit


@dataclass(slots=True)
class Service:
    """One server's state. Everything durable is in the ledger."""

    ledger: Ledger
    store: Store
    settings: ServeSettings
    hosts: HostDefaults = field(default_factory=HostDefaults)
    depot: Any = None  # for what needs more than ledger and store: uploads, torrents
    metrics: Any = None
    wake: Callable[[], None] = lambda: None  # tells the workers of this process that there is work
    started_at: Micros = 0
    first_code: str | None = None  # of the first-run link; used once
    wrong: Throttle | None = None
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    streams: Counter[str] = field(default_factory=Counter)  # open event streams by token
    ticks: dict[Scope, float] = field(default_factory=dict)  # when this process last reported progress, by scope
    moving: dict[str, tuple[int, int | None]] = field(
        default_factory=dict
    )  # bytes done and in all, by job under way here
    _arrivals: dict[tuple[Scope, str], dict[Micros, tuple[int, int]]] = field(default_factory=dict)

    def note(self, note: Note) -> None:
        """Hear of progress in this process; called on the event loop."""
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
        """Add to a job how far its transfer is, if a worker of this process has it: the ledger is not asked to keep that."""
        if job["status"] != Status.PROCESSING or (moved := self.moving.get(job["job_id"])) is None:
            return job
        done, total = moved
        percent = min(99, done * 100 // total) if total else None
        return job | {"progress": percent, "bytes_done": done, "bytes_total": total}

    async def throughput(self, scope: Scope, window: Window) -> tuple[Micros, list[Slot]]:
        """Give the chart's slots, reading only what may have changed since the last time."""
        known = self._arrivals.setdefault((scope, window.name), {})
        if len(self._arrivals) > 1000:
            self._arrivals.pop(next(iter(self._arrivals)))
        newest = max(known, default=0)

        def since(now: Micros) -> Micros:
            start = max(window.start(now), newest - SETTLED_S * SECOND)
            return start - start % (window.slot_s * SECOND)

        now, rows = await self.ledger.read_soon(arrivals, scope, since, window.slot_s)
        known.update((at, (files, size)) for at, files, size in rows)
        start = window.start(now)
        for at in [at for at in known if at < start]:
            del known[at]
        return now, slots(window, now, ((at, files, size) for at, (files, size) in known.items()))

    async def wait_for(self, scope: Scope, job_id: str, wait_s: float) -> Any:
        """Give a job when it is over, or as it stands when the time is."""

        async def look() -> Any:
            return await self.ledger.read_soon(lookup.job, scope, job_id)

        return await poll(look, lambda job: job.status in TERMINAL or self.closing.is_set(), wait_s)


async def poll(look: Callable[[], Awaitable[T]], enough: Callable[[T], bool], wait_s: float, step_s: float = 0.1) -> T:
    """Look again and again until it is enough or the time is over; at least once."""
    until = time.monotonic() + wait_s
    while True:
        found = await look()
        left = until - time.monotonic()
        if left <= 0 or enough(found):
            return found
        await asyncio.sleep(min(step_s, left))
