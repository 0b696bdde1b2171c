"""How attempts are written down: whatever ends in one turn of the event loop ends in one transaction."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from longshore import failpoints
from longshore.domain.model import Lease
from longshore.domain.outcomes import Outcome
from longshore.errors import LeaseLost, LongshoreError, Unavailable
from longshore.ledger.records import Settled
from longshore.ledger.settling import settle

if TYPE_CHECKING:
    from longshore.ledger import Ledger

log = logging.getLogger(__name__)
failpoints.declare("settle.before", "settle.after")
PATIENCE_S: Final = (0.05, 0.2, 0.5, 1.0)  # while the ledger is away; the lease's own end limits it

Ended = tuple[Lease, Outcome, "asyncio.Future[Settled]"]


class Settler:
    """Collects endings and settles them in batches. Nothing else in the engine ends a lease."""

    def __init__(self, ledger: Ledger, patience_s: float) -> None:
        self._ledger, self._patience_s = ledger, patience_s
        self._hurried = False
        self.forsaken = False  # some leases stay as they are, although nobody works on them any more
        self._queue: list[Ended] = []
        self._busy: set[asyncio.Task[None]] = set()

    def settle(self, lease: Lease, outcome: Outcome) -> asyncio.Future[Settled]:
        """Write down how an attempt ended; the future raises `LeaseLost` when it was no longer ours."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Settled] = loop.create_future()
        if not self._queue:
            loop.call_soon(self._flush)
        self._queue.append((lease, outcome, done))
        return done

    def hurry(self) -> None:
        """Wait no longer for a ledger that does not take what has ended: its leases run out by themselves."""
        self._hurried = True
        self._ledger.give_up()

    async def idle(self) -> None:
        """Wait until everything handed in is written."""
        while self._busy or self._queue:
            await asyncio.sleep(0)
            if self._busy:
                await asyncio.wait(self._busy)

    def _flush(self) -> None:
        batch, self._queue = self._queue, []
        task = asyncio.get_running_loop().create_task(self._write(batch))
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)

    async def _write(self, batch: list[Ended]) -> None:
        try:
            answers = await self._patiently([(lease, outcome) for lease, outcome, _ in batch])
        except LongshoreError as error:
            answers = [error] * len(batch)
        except Exception as error:  # whoever waits must hear of it, or the job is held for ever by a healthy heartbeat
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
        """Try as long as leases last: a ledger that is away for a moment must not cost finished work."""
        tries = 0
        end = time.monotonic() + self._patience_s  # a lease's own `until` is that of its claim, not of its renewals
        while True:
            failpoints.hit("settle.before")
            try:
                answers = await self._ledger.soon(settle, ended)
            except Unavailable as away:
                if not tries:  # whoever watches must know why nothing moves
                    log.warning("endings cannot be written, and wait: %s", away)
                self.forsaken = self.forsaken or self._hurried
                if self._hurried or time.monotonic() > end:
                    raise LeaseLost("the ledger was away for longer than it may be waited for") from None
                await asyncio.sleep(PATIENCE_S[min(tries, len(PATIENCE_S) - 1)])
                tries += 1
            else:
                failpoints.hit("settle.after")
                return answers
