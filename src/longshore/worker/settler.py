"""Write the outcomes of attempts in batches.

All that end in one iteration of the event loop share one transaction, and so do all that end while `WRITES` transactions are
under way: short jobs end one by one, and a transaction for each would cost more than the jobs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from longshore import failpoints
from longshore.domain.model import Lease
from longshore.domain.outcomes import Outcome
from longshore.errors import LeaseLost, LongshoreError, Unavailable
from longshore.ledger.operations.settling import settle
from longshore.ledger.records import Settled

if TYPE_CHECKING:
    from longshore.ledger import Ledger

log = logging.getLogger(__name__)
failpoints.declare("settle.before", "settle.after")
WRITES: Final = 2  # transactions under way at once
PATIENCE_S: Final = (0.05, 0.2, 0.5, 1.0)  # while the ledger is away; the lease's own end limits it

Ended = tuple[Lease, Outcome, "asyncio.Future[Settled]"]


class Settler:
    """Collects outcomes and settles them in batches. Only the settler ends leases."""

    def __init__(self, ledger: Ledger, patience_s: float) -> None:
        self._ledger, self._patience_s = ledger, patience_s
        self._hurried = False
        self.forsaken = False  # some leases were not released, although their jobs have ended
        self._queue: list[Ended] = []
        self._busy: set[asyncio.Task[None]] = set()

    def settle(self, lease: Lease, outcome: Outcome) -> asyncio.Future[Settled]:
        """Queue an attempt's outcome; the returned future raises `LeaseLost` if the lease was lost."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Settled] = loop.create_future()
        if not self._queue:
            loop.call_soon(self._flush)
        self._queue.append((lease, outcome, done))
        return done

    def hurry(self) -> None:
        """Stop waiting for a ledger that does not answer: the leases expire by themselves."""
        self._hurried = True
        self._ledger.give_up()

    async def idle(self) -> None:
        """Wait until every queued outcome is written."""
        while self._busy or self._queue:
            await asyncio.sleep(0)
            if self._busy:
                await asyncio.wait(self._busy)

    def _flush(self) -> None:
        if not self._queue or len(self._busy) >= WRITES:
            return
        batch, self._queue = self._queue, []
        task = asyncio.get_running_loop().create_task(self._write(batch))
        self._busy.add(task)
        task.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._busy.discard(task)
        self._flush()

    async def _write(self, batch: list[Ended]) -> None:
        try:
            answers = await self._patiently([(lease, outcome) for lease, outcome, _ in batch])
        except LongshoreError as error:
            answers = [error] * len(batch)
        except Exception as error:  # fail the waiters, or the heartbeat would keep the lease for ever
            log.exception("endings could not be written")
            answers = [LongshoreError(f"{type(error).__name__} while an ending was written")] * len(batch)
        for (_, _, done), answer in zip(batch, answers, strict=True):
            if done.cancelled():
                continue
            if isinstance(answer, Settled):
                done.set_result(answer)
            else:
                done.set_exception(answer)

    async def _patiently(self, ended: list[tuple[Lease, Outcome]]) -> list[Settled | LongshoreError]:
        """Retry until the leases expire: a short outage of the ledger must not lose finished work."""
        tries = 0
        end = time.monotonic() + self._patience_s  # a lease's own `until` is that of its claim, not of its renewals
        while True:
            failpoints.hit("settle.before")
            try:
                answers = await self._ledger.write_async(settle, ended)
            except Unavailable as away:
                if not tries:  # log once why there is no progress
                    log.warning("endings cannot be written, and wait: %s", away)
                self.forsaken = self.forsaken or self._hurried
                if self._hurried or time.monotonic() > end:
                    raise LeaseLost("the ledger was away for longer than it may be waited for") from None
                await asyncio.sleep(PATIENCE_S[min(tries, len(PATIENCE_S) - 1)])
                tries += 1
            else:
                failpoints.hit("settle.after")
                return answers
