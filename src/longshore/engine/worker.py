"""One worker process: claims leases in batches, runs one task per lease, owns the one `try`, and has each ending written.

It never polls busily: it claims when leases ended, when something becomes due, or when somebody says that there is work.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from longshore import failpoints
from longshore.domain import candidates
from longshore.domain.endings import Mishap, Past, ending
from longshore.domain.model import SECOND, Lease, Micros, Scope
from longshore.domain.outcomes import Canceled, Completed, Deferred, Outcome, Released, Reused
from longshore.domain.space import Lack
from longshore.engine.duties import Duties
from longshore.engine.errands import Errand, Held, Tally, Tools
from longshore.engine.heartbeat import Heartbeat
from longshore.engine.mishaps import mishap_of
from longshore.engine.patience import Patience
from longshore.engine.questions import active_due, work_due
from longshore.engine.settler import Settler
from longshore.errors import LeaseLost, LedgerError, LongshoreError, Unavailable
from longshore.ledger.abandoning import GivenUp
from longshore.ledger.records import Settled

log = logging.getLogger(__name__)
failpoints.declare("claim.before", "claim.after", "work.begin", "work.end")
POLL_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)  # somebody else's work is seen at the latest after the last of these
ROOM_S: Final = 0.5  # how often a full disk is looked at


class Worker:
    """Works on one errand until it is done or told to stop."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._ledger = tools.ledger
        self._settings = tools.settings
        self._held: dict[tuple[str, int], Held] = {}
        self._event_loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._draining = False
        self._ending = 0  # of the held leases, those whose end is being written: they keep nobody from coming
        self._full: bool | None = None  # the disk: nothing is claimed until there is room; None: not looked yet
        self._named: dict[str, None] | None = None  # of the jobs that the errand names, those that are left to claim
        self._expecting = False  # further names
        self._errand: Errand | None = None
        self._idle_at: float | None = None  # since then there is work left, but nothing can be claimed
        self._settler = Settler(tools.ledger, tools.settings.lease.ttl_s)
        self._patience = Patience(lambda: len(self._held) > self._ending, self._settler.hurry, None)
        self._progress_at = time.monotonic()
        self.tally = Tally()
        tools.watch.on_failure = lambda: self._drain_now("nobody listens any more")

    # ── from outside ──

    @property
    def holding(self) -> int:
        """How many leases are ours now."""
        return len(self._held)

    @property
    def idle_s(self) -> float:
        """For how long no lease was held; 0 while there are some, or while further names are expected."""
        return 0.0 if self._held or self._idle_at is None else time.monotonic() - self._idle_at

    @property
    def scope(self) -> Scope | None:
        """Whose jobs are worked on; None: everybody's."""
        return self._errand.scope if self._errand else None

    @property
    def forsaken(self) -> bool:
        """Tell whether leases of ours could not be given back."""
        return self._settler.forsaken

    def notify(self) -> None:
        """Say, from any thread, that there may be something to claim."""
        self._call(self._wake.set)

    def drain(self, why: str = "asked to stop") -> None:
        """Claim nothing more, end soon and in good order; from any thread."""
        self._call(self._drain_now, why)

    def abort(self) -> None:
        """Stop every task now; what is durable is kept. From any thread."""
        self._call(self._abort_now)

    def _call(self, what: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: the run is over
            self._event_loop.call_soon_threadsafe(what, *arguments)

    def _drain_now(self, why: str) -> None:
        self.tally.stopped_by = self.tally.stopped_by or why
        self._draining = True
        self._patience.end_within(self._settings.drain_s)
        self._tools.turn_away()  # now, not when the loop comes round: a place that gets free meanwhile is nobody's
        self._wake.set()

    def _abort_now(self) -> None:
        self._drain_now("asked to stop")
        self._patience.end_within(0)
        for held in self._held.values():
            held.stop(Released())

    def cancel(self, job_ids: Iterable[str]) -> None:
        """Stop work on jobs whose cancellation was asked for in this process."""
        wanted = set(job_ids)
        for held in list(self._held.values()):
            if held.lease.job_id in wanted:
                held.stop(Canceled())

    def abandoned(self, failed: Iterable[GivenUp]) -> None:
        """Count and report jobs of this errand that failed with their host."""
        scope = self._errand.scope if self._errand else None
        for gone in failed:
            if scope not in (None, gone.scope) or (self._named is not None and gone.job_id not in self._named):
                continue
            if self._named is not None:
                del self._named[gone.job_id]
            self.tally.failed += 1
            self._progress_at = time.monotonic()
            self._tools.watch.given_up(gone)

    # ── the loop ──

    async def run(self, errand: Errand) -> Tally:
        """Claim and work until nothing is left, the wait is over or we are told to stop."""
        self._errand = errand
        self._named = None if errand.job_ids is None else dict.fromkeys(errand.job_ids)
        self._expecting = errand.more is not None
        heart = Heartbeat(self._ledger, self._settings.lease, self._leases, self._on_lost, self._on_cancel)
        self._patience.limit_s = None if errand.forever else errand.max_wait_s
        async with self._patience, heart, Duties(self, self._tools):
            try:
                await self._loop(errand)
            finally:
                await self._finish()
        return self.tally

    async def _loop(self, errand: Errand) -> None:
        idle = 0
        while not self._draining:
            self._wake.clear()
            try:
                if await self._claim(errand):
                    idle = 0
                elif self._held or self._expecting:
                    await self._rest(POLL_S[-1])
                elif self._allowed(errand) == 0:
                    self.tally.left = await self._due(errand) is not None
                    return
                elif (due := await self._due(errand)) is None and not errand.forever:
                    return
                elif self._waited_enough(errand):
                    self.tally.left = True
                    return
                else:
                    self._idle_at = self._idle_at or (time.monotonic() if due is not None else None)
                    await self._tools.bury()
                    await self._rest(self._pause_s(due, idle))
                    idle += 1
            except Unavailable as away:
                if not self._full:
                    log.warning("the ledger does not answer: %s", away)
                    self._look_for_room()
                if not self._held and not errand.forever and self._enough_of(away, errand):
                    return
                await self._rest(POLL_S[-1])

    def _enough_of(self, away: Unavailable, errand: Errand) -> bool:
        """Tell whether a ledger that does not answer was waited for long enough; raise if nobody said how long that is."""
        if errand.max_wait_s is None:
            if self._full:
                return False  # a full disk is waited for, as the store's is
            raise away
        if not self._waited_enough(errand):
            return False
        log.warning("gave up after %g s without progress: %s", errand.max_wait_s, away)
        self.tally.left = True
        return True

    async def _claim(self, errand: Errand) -> int:
        """Take as many leases as there are places for; give how many came."""
        settings = self._settings
        places = min(self._places(), self._allowed(errand)) if self._room() else 0
        if places <= 0:
            return 0
        if self._named is not None and len(self._named) < places:
            self._take_names(errand)
        if self._named == {}:
            return 0
        failpoints.hit("claim.before")
        leases = await self._ledger.claim_soon(
            self._tools.owner,
            limit=places,
            ttl_s=settings.lease.ttl_s,
            job_types=errand.job_types or self._tools.handlers.types(),
            scope=errand.scope,
            job_ids=None if self._named is None else tuple(self._named),
            defaults=self._tools.hosts,
            max_claims=settings.retry.max_claims,
            ahead=settings.ahead,
            at_once=settings.concurrency,
        )
        failpoints.hit("claim.after")
        try:
            await self._tools.handlers.prepare(leases)
        finally:  # they are ours, whatever a look at what is known came to
            for lease in leases:
                self._start(lease)
        if not leases:  # whatever our names wait for, others may not
            self._take_names(errand)
        return len(leases)

    def _places(self) -> int:
        """Return how many leases to claim now: a batch, or nothing. Leases at hosts that do not move count once more as
        places, so that they never keep others from being claimed; if even these are used up, those that wait go back."""
        total = self._settings.concurrency + self._settings.ahead
        places = total - len(self._held) + self._ending
        slow_hosts = self._tools.berths.slow_hosts
        if not slow_hosts:
            return places if places >= total // 4 else 0
        slow = sum(1 for held in self._held.values() if held.lease.job.request.host in slow_hosts)
        places += min(slow, total)
        if places <= 0 and slow >= len(self._held) - self._ending:
            self._tools.berths.turn_away_slow()
        moving = len(self._held) - self._ending - slow
        return places if places >= total // 4 or moving <= 0 else 0

    def _take_names(self, errand: Errand) -> None:
        """Take the further names that came, if the errand has any."""
        if errand.more is None or self._named is None or not self._expecting:
            return
        names = errand.more()
        self._expecting = names is not None
        self._named.update(dict.fromkeys(names or ()))
        if names or not self._expecting:
            self._wake.set()

    def _allowed(self, errand: Errand) -> int:
        """How many more jobs this errand may begin."""
        if errand.limit is None:
            return sys.maxsize
        return max(0, errand.limit - self.tally.over - len(self._held))

    async def _due(self, errand: Errand) -> Micros | None:
        """Tell when something of the errand can be claimed, by us or after others let it go; None: nothing is left."""
        if self._named is not None:
            return await self._ledger.read_soon(active_due, errand.scope or Scope(), tuple(self._named))
        types = errand.job_types or self._tools.handlers.types()
        return await self._ledger.read_soon(work_due, errand.scope, types)

    def _waited_enough(self, errand: Errand) -> bool:
        waited = time.monotonic() - self._progress_at
        return errand.max_wait_s is not None and waited >= errand.max_wait_s

    def _pause_s(self, due: Micros | None, idle: int) -> float:
        """Wait until something is due, but look at the latest after a second what others did."""
        at_most = ROOM_S if self._full else POLL_S[min(idle, len(POLL_S) - 1)]
        if due is None or due <= self._ledger.now():
            return at_most
        return min((due - self._ledger.now()) / SECOND, at_most)

    async def _rest(self, seconds: float) -> None:
        """Sleep until something ends, somebody calls or the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _room(self) -> bool:
        """Tell whether anything can be written; while the disk is full no job is claimed, so no request is sent."""
        if self._full is not False:
            self._look_for_room()
        return not self._full

    def _look_for_room(self) -> None:
        """Look whether the disk is full, and log it once when that changes."""
        try:
            why = self._tools.full()
        except LongshoreError:
            return  # a disk that cannot be asked is told by the next job
        if why and not self._full:
            log.warning("the disk is full (%s): nothing is fetched until there is room; make some", why)
        elif self._full and not why:
            log.warning("there is room on the disk again: work goes on")
        self._full = why is not None

    # ── one lease ──

    def _start(self, lease: Lease) -> None:
        held, self._idle_at = Held(lease), None
        self._held[lease.job_id, lease.epoch] = held
        if self._named:
            self._named.pop(lease.job_id, None)
        held.task = asyncio.get_running_loop().create_task(self._work(held))

    async def _work(self, held: Held) -> None:
        lease = held.lease
        try:
            failpoints.hit("work.begin")
            held.working = True
            if held.unwanted:  # stopped before the first step: a canceled task would never get here
                raise asyncio.CancelledError
            outcome = await self._tools.handlers.run(lease)
            failpoints.hit("work.end")
        except asyncio.CancelledError:
            outcome = held.stopped or Released()
        except LeaseLost:
            held.lost = True
            outcome = Released()
        except Exception as error:  # noqa: BLE001 -- the one place that may: whatever a job raises ends that job's attempt only
            outcome = self._ending_of(lease, mishap_of(error))
        held.working = False
        await self._end(held, outcome)

    def _ending_of(self, lease: Lease, mishap: Mishap) -> Outcome:
        if mishap.reason == "interrupted" or (mishap.reason == "host_busy" and mishap.host is None):
            return Released(mishap.reason)
        if mishap.reason == "disk_full" and mishap.lack in (None, Lack.FULL):
            self._look_for_room()
            if not self._full:  # something fits, so it was these bytes that did not
                mishap = replace(mishap, lack=mishap.lack or Lack.NOT_NOW)
        job = lease.job
        past = Past(job.attempts, job.reason, job.request.max_attempts, candidates.read(job.trail))
        return ending(mishap, past, random.random(), self._settings.retry)

    async def _end(self, held: Held, outcome: Outcome) -> None:
        lease, over = held.lease, False
        self._ending += 1
        self._wake.set()
        try:
            if held.lost:
                self.tally.lost += 1
            else:
                outcome, settled = await self._settled(lease, outcome)
                over = not isinstance(outcome, Deferred | Released)
                self._tools.watch.ended(lease, outcome, settled, self.tally)
        except LeaseLost:
            self.tally.lost += 1
        except LongshoreError as error:
            log.error("job %s could not be settled: %s", lease.job_id, error)
        finally:
            with suppress(RuntimeError, MemoryError):  # no thread: what stays behind is the reconciler's
                self._tools.clean(lease, done=isinstance(outcome, Completed | Reused) and not held.lost)
            del self._held[lease.job_id, lease.epoch]
            self._ending -= 1
            if over:
                self._progress_at = time.monotonic()
                self._patience.moved()
            elif self._named is not None:
                self._named[lease.job_id] = None
            self._wake.set()

    async def _settled(self, lease: Lease, outcome: Outcome) -> tuple[Outcome, Settled]:
        """Have an ending written; one that the ledger refuses becomes a fault, or its job would come back for ever."""
        try:
            return outcome, await self._settler.settle(lease, outcome)
        except (LeaseLost, LedgerError):
            raise
        except LongshoreError as error:
            log.error("job %s could not be settled: %s", lease.job_id, error)
            outcome = self._ending_of(lease, Mishap("internal_error", f"its end could not be written: {error}"))
            return outcome, await self._settler.settle(lease, outcome)

    # ── leases as a whole ──

    def _leases(self) -> list[Lease]:
        return [held.lease for held in self._held.values()]

    def _on_lost(self, key: tuple[str, int]) -> None:
        if held := self._held.get(key):
            held.stop(None)

    def _on_cancel(self, job_id: str) -> None:
        self.cancel([job_id])

    async def _finish(self) -> None:
        """Let running transfers end within the limit, stop the rest, and write down every ending."""
        self._tools.turn_away()
        tasks = [held.task for held in self._held.values() if held.task]
        if tasks:
            await asyncio.wait(tasks, timeout=self._settings.drain_s)
        for held in list(self._held.values()):
            held.stop(Released())
        if left := [held.task for held in self._held.values() if held.task]:
            await asyncio.wait(left)
        await self._settler.idle()
