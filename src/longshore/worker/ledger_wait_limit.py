"""Limit the wait for a ledger that does not answer: `max_wait_s` without progress, `drain_s` after a stop request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from longshore.errors import Unavailable, WaitedEnough

if TYPE_CHECKING:
    from longshore.ledger import Ledger

T = TypeVar("T")
LOOK_S: Final = 0.25
LEAST_S: Final = 1.0  # a healthy ledger answers within this, so shorter limits are raised to it


async def answered(ledger: Ledger, max_wait_s: float | None, work: asyncio.Future[T]) -> T:
    """Wait for an answer of the ledger, at most as long as allowed."""
    if max_wait_s is None:
        return await work
    allowed = max(max_wait_s, LEAST_S)
    if not (await asyncio.wait([work], timeout=allowed))[0]:
        ledger.give_up()
        if not (await asyncio.wait([work], timeout=LEAST_S))[0]:
            work.cancel()
            raise WaitedEnough(f"the ledger did not answer within {allowed:g} s")
        if isinstance(error := work.exception(), Unavailable):
            raise WaitedEnough(f"gave up after {allowed:g} s: {error}", hint=error.hint) from error
    return work.result()


class LedgerWait:
    """Call `over` repeatedly once no work has been running for `limit_s`, or after a deadline.

    Work that waits for a silent ledger does not run.
    """

    def __init__(
        self,
        at_work: Callable[[], bool],
        over: Callable[[], None],
        ledger: Ledger,
        byte_at: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._at_work, self._over, self._ledger = at_work, over, ledger
        self.limit_s: float | None = None
        self._byte_at = byte_at  # when a body byte last arrived: attempts shorter than `LOOK_S` are work, too
        self._moved_at = time.monotonic()
        self._deadline: float | None = None
        self._task: asyncio.Task[None] | None = None

    def moved(self) -> None:
        """Note progress."""
        self._moved_at = time.monotonic()

    def end_within(self, seconds: float) -> None:
        """Set the deadline, unless an earlier one is set."""
        end = time.monotonic() + seconds
        self._deadline = end if self._deadline is None else min(end, self._deadline)

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
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            if self._at_work() and self._ledger.silent_s() < LEAST_S:
                self._moved_at = now
            moved_at = max(self._moved_at, self._byte_at())
            waited = self.limit_s is not None and now - moved_at >= max(self.limit_s, LEAST_S)
            if waited or (self._deadline is not None and now >= self._deadline):
                self._over()
