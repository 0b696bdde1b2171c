"""Renew all leases of a worker in one heartbeat, independently of the transfers. A lost lease stops its job at once.

Between two renewals, the progress of large bodies is stored every few seconds: one transaction for all of them, and none
while nothing moves. A body that ends before the next report is never reported.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from longshore import failpoints
from longshore.domain.model import Lease
from longshore.errors import LedgerError
from longshore.ledger.operations.leasing import renew
from longshore.ledger.operations.stages import Progress, report

if TYPE_CHECKING:
    from longshore.domain.settings import LeaseSettings
    from longshore.ledger import Ledger

log = logging.getLogger(__name__)
failpoints.declare("heartbeat.before", "heartbeat.after")
AGAIN_S: Final = 1.0  # after a beat that the ledger did not answer
PROGRESS_S: Final = 2.0  # how often progress is stored


class Heartbeat:
    """Renews what `leases()` gives, every `renew_s`, for as long as the block lasts."""

    def __init__(
        self,
        ledger: Ledger,
        settings: LeaseSettings,
        leases: Callable[[], Iterable[Lease]],
        on_lost: Callable[[tuple[str, int]], None],
        on_cancel: Callable[[AbstractSet[str]], None],
        progress: Callable[[], Iterable[Progress]] = tuple,
    ) -> None:
        self._ledger, self._settings = ledger, settings
        self._leases, self._on_lost, self._on_cancel = leases, on_lost, on_cancel
        self._progress = progress
        self._stored: dict[tuple[str, int], int] = {}  # bytes done of the last report, by lease
        self._good = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        every = self._settings.renew_every_s
        due = time.monotonic() + every
        while True:
            left = due - time.monotonic()
            await asyncio.sleep(max(0.0, min(left, PROGRESS_S)))
            if left <= PROGRESS_S:
                due = time.monotonic() + (every if await self._beat() else min(AGAIN_S, every))
            elif moved := self._moved():
                with suppress(LedgerError):  # the next heartbeat reports a ledger that does not answer
                    await self._ledger.write_async(report, moved)

    def _moved(self) -> list[Progress]:
        """Return the progress of the transfers that received bytes since the last report."""
        before, self._stored = self._stored, {}
        moved = []
        for lease, done, total in self._progress():
            key = (lease.job_id, lease.epoch)
            self._stored[key] = done
            if before.get(key) != done:
                moved.append((lease, done, total))
        return moved

    async def _beat(self) -> bool:
        leases = list(self._leases())
        began = time.monotonic()
        failpoints.hit("heartbeat.before")
        try:
            renewed = await self._ledger.write_async(renew, leases, self._settings.ttl_s, self._moved())
        except LedgerError as away:
            log.warning("leases could not be renewed: %s", away)
            if began - self._good > self._settings.ttl_s:
                for lease in leases:  # expired by the local clock: their jobs must stop
                    self._on_lost((lease.job_id, lease.epoch))
            return False
        failpoints.hit("heartbeat.after")
        self._good = began
        for key in renewed.lost:
            self._on_lost(key)
        if renewed.canceled:
            self._on_cancel(renewed.canceled)
        return True
