"""One worker process: claim leases in batches, run one task per lease, write each outcome.

    _loop     claim a batch when leases ended, when a job becomes due, or when another process planned some
    _claim    ledger.claim → leases, as many as there are places for → handlers.prepare (one read for the batch)
    _work     handlers.run(lease): the handler of the job's kind (worker/kinds/) does the work and publishes its
              bodies through the one publisher (publisher.py, publish_protocol.py); it returns an outcome
    _end      settler.settle(lease, outcome): register the results and end the lease, in one transaction per batch;
              then the private names in staging go (`clean`)

Problem: thousands of small jobs must share commits and fsync barriers, one job's error must not touch another, and a
process may be killed, drained or lose its ledger at any step.

Invariant: a lease that was claimed has a task until its outcome is written or the lease is lost. `_work` has the only
`except Exception` of the worker: whatever a handler raises becomes the outcome of that job (retry, failure, release) by
`domain.policy.retry`. A task that dies of anything else gets its outcome from `_after`. Only the settler ends leases. The heartbeat renews all of them together; a lease that is lost stops
its task, and nothing is written for it.

Order: leases whose outcome is being committed do not count against the claim limit, so the next batch is claimed while the
last one commits. A drain claims nothing more, lets transfers end within `drain_s`, releases the rest, and returns after
the settler is idle.

Not done: publishing in this loop instead of in the handlers (the results of a custom job lie in its scratch directory,
which ends with the handler), and a fixed pool of tasks (a slow host would hold its places).
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
from longshore.domain.kinds import kind_of
from longshore.domain.model import SECOND, Lease, Micros, Scope
from longshore.domain.outcomes import Canceled, Completed, Deferred, Outcome, Released, Reused
from longshore.domain.policy.disk_space import Lack
from longshore.domain.policy.refusals import Refusals
from longshore.domain.policy.retry import Failure, Past, next_outcome
from longshore.domain.transfer import mirrors
from longshore.errors import HookFailed, LeaseLost, LedgerError, LongshoreError, Unavailable
from longshore.ledger.operations.give_up_host import FailedWithHost
from longshore.ledger.queries.due_work import active_due, work_due
from longshore.ledger.queries.runs import run_due
from longshore.ledger.records import Settled
from longshore.worker.background_tasks import BackgroundTasks
from longshore.worker.failures import failure_of
from longshore.worker.fair_share import fair_share
from longshore.worker.heartbeat import Heartbeat
from longshore.worker.ledger_wait_limit import LedgerWait
from longshore.worker.run_types import RunningLease, RunOptions, RunResult, WorkerContext
from longshore.worker.settler import Settler

log = logging.getLogger(__name__)
failpoints.declare("claim.before", "claim.after", "work.begin", "work.end")
# Pauses while idle; work of another process is seen after the last one at the latest.
POLL_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
ROOM_S: Final = 0.5  # how often a full disk is checked


class Worker:
    """Runs the jobs of one run until they are done or the run is stopped."""

    def __init__(self, tools: WorkerContext) -> None:
        self._tools = tools
        self._ledger, self._settings = tools.ledger, tools.settings
        self._held: dict[tuple[str, int], RunningLease] = {}
        self._event_loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._draining = False
        self._ending = 0  # leases whose outcome is being committed; they do not count against the claim limit
        self._disk = tools.disk
        self._named: dict[str, None] | None = None  # the jobs named in the run's options that are still to be claimed
        self._expecting = False  # more named jobs may follow
        self._options: RunOptions | None = None
        self._idle_at: float | None = None  # since when jobs are left, but none can be claimed
        self._settler = Settler(tools.ledger, tools.settings.lease.ttl_s)
        self._patience = LedgerWait(
            lambda: len(self._held) > self._ending, self._settler.hurry, tools.ledger, lambda: tools.silent.byte_at
        )
        self._progress_at = time.monotonic()
        self._refusals = Refusals()
        self.result = RunResult()

    # ── from outside ──

    @property
    def holding(self) -> int:
        """The number of leases held now."""
        return len(self._held)

    @property
    def idle_s(self) -> float:
        """How long no lease has been held; 0 while leases are held or more named jobs are expected."""
        return 0.0 if self._held or self._idle_at is None else time.monotonic() - self._idle_at

    @property
    def scope(self) -> Scope | None:
        """The tenant and project whose jobs are worked on; None: all."""
        return self._options.scope if self._options else None

    @property
    def unclaimed(self) -> tuple[str, ...] | None:
        """The named jobs that are still to be claimed; None: the run is not about named jobs."""
        return None if self._named is None else tuple(self._named)

    @property
    def forsaken(self) -> bool:
        """Return whether leases of this worker could not be released."""
        return self._settler.forsaken

    def notify(self) -> None:
        """Wake the loop because a job may be claimable. Thread-safe."""
        self._call(self._wake.set)

    def drain(self, why: str = "asked to stop") -> None:
        """Stop claiming and shut down gracefully. Thread-safe."""
        self._call(self._drain_now, why)

    def abort(self) -> None:
        """Stop every task now; durable bytes are kept. Thread-safe."""
        self._call(self._abort_now)

    def _call(self, what: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: the run is over
            self._event_loop.call_soon_threadsafe(what, *arguments)

    def _drain_now(self, why: str) -> None:
        self.result.stopped_by = self.result.stopped_by or why
        self._draining = True
        self._patience.end_within(self._settings.transfer.drain_s)
        self._tools.turn_away()  # at once: a slot that becomes free before the next turn of the loop must not be taken
        self._wake.set()

    def _abort_now(self) -> None:
        self._drain_now("asked to stop")
        self._patience.end_within(0)
        for held in self._held.values():
            held.stop(Released())

    def cancel(self, job_ids: Iterable[str]) -> None:
        """Stop jobs whose cancellation was requested in this process."""
        wanted = set(job_ids)
        for held in list(self._held.values()):
            if held.lease.job_id in wanted:
                held.stop(Canceled())

    def abandoned(self, failed: Iterable[FailedWithHost]) -> None:
        """Count and report jobs of this run that failed because their host was given up."""
        for gone in failed:
            if self.scope not in (None, gone.scope) or (self._named is not None and gone.job_id not in self._named):
                continue
            if self._named is not None:
                del self._named[gone.job_id]
            self.result.failed += 1
            self._progress_at = time.monotonic()
            self._tools.watch.given_up(gone)

    # ── the loop ──

    async def run(self, options: RunOptions) -> RunResult:
        """Claim and run jobs until none is left, the wait times out or a stop is requested."""
        self._options = options  # a permanent worker serves others, too: it does not stop
        self._refusals = Refusals(0 if options.forever else self._settings.network.max_refusals)
        self._named = None if options.job_ids is None else dict.fromkeys(options.job_ids)
        self._expecting = options.more is not None
        heart = Heartbeat(
            self._ledger, self._settings.lease, self._leases, self._on_lost, self.cancel, self._tools.progress
        )
        self._patience.limit_s = None if options.forever else options.max_wait_s
        self._disk.wait_at_most(self._patience.limit_s)
        async with self._patience, heart, BackgroundTasks(self, self._tools):
            try:
                await self._loop(options)
            finally:
                await self._finish()
        return self.result

    async def _loop(self, options: RunOptions) -> None:
        idle = 0
        while not self._draining:
            self._wake.clear()
            if (why := self._tools.watch.ends_run(self._refusals)) is not None:
                self._drain_now(why)
                return
            try:
                if await self._claim(options):
                    idle = 0
                elif self._held or self._expecting:
                    if self._gives_up_on_transfers(options):
                        return
                    await self._rest(POLL_S[-1])
                elif self._allowed(options) == 0:
                    self.result.left = await self._due(options) is not None
                    return
                elif (due := await self._due(options)) is None and not options.forever:
                    return
                elif self._waited_enough(options) or (self._settings.offline and not options.forever):
                    self.result.left = True
                    return
                else:
                    self._idle_at = self._idle_at or (time.monotonic() if due is not None else None)
                    await self._tools.release_dead_owners()
                    await self._rest(self._pause_s(due, idle))
                    idle += 1
            except Unavailable as away:
                if self._draining or self._enough_of(away, options):
                    return
                await self._rest(POLL_S[-1])

    def _enough_of(self, away: Unavailable, options: RunOptions) -> bool:
        """Return whether an unavailable ledger was waited for long enough; raise if the run has no limit for that."""
        if not self._disk.full:
            log.warning("the ledger does not answer: %s", away)
            self._disk.look()
        if self._held or options.forever:
            return self._gives_up_on_transfers(options)
        if options.max_wait_s is None:
            if self._disk.full:
                return False  # wait for a full disk, as for the store's
            raise away
        if not self._waited_enough(options):
            return False
        log.warning("gave up after %g s without progress: %s", options.max_wait_s, away)
        self.result.left = True
        return True

    async def _claim(self, options: RunOptions) -> int:
        """Claim as many leases as there are free slots; return the number claimed."""
        settings = self._settings
        room = await self._disk.has_room(idle=not self._held)
        places = min(self._places(), self._allowed(options)) if room else 0
        if places <= 0:
            return 0
        if self._named is not None and len(self._named) < places:
            self._take_names(options)
        if self._named == {}:
            return 0
        places = await fair_share(self._tools, options, places, len(self._held))
        if places == 0:
            return 0
        failpoints.hit("claim.before")
        leases = await self._ledger.claim_async(
            self._tools.owner,
            limit=places,
            ttl_s=settings.lease.ttl_s,
            job_types=options.job_types or self._tools.handlers.types(),
            scope=options.scope,
            job_ids=None if self._named is None else tuple(self._named),
            run_id=options.run_id,
            defaults=self._tools.hosts,
            max_claims=settings.retry.max_claims,
            ahead=self._tools.ahead.count(time.monotonic()),
            at_once=settings.transfer.concurrency,
        )
        failpoints.hit("claim.after")
        try:
            await self._tools.handlers.prepare(leases)
        finally:  # the leases are held even if preparing the batch failed
            for lease in leases:
                self._start(lease)
        if not leases:  # the named jobs have to wait, others may be claimable
            self._take_names(options)
        return len(leases)

    def _places(self) -> int:
        """Return how many leases to claim now: a batch, or 0. Leases at slow hosts get extra slots, so that they never
        prevent other claims; if these are used up as well, waiting leases at slow hosts are released."""
        total = self._settings.transfer.concurrency + self._tools.ahead.count(time.monotonic())
        places = total - len(self._held) + self._ending
        slow_hosts = self._tools.transfer_slots.slow_hosts
        if not slow_hosts:
            return places if places >= total // 4 else 0
        slow = sum(1 for held in self._held.values() if held.lease.job.request.host in slow_hosts)
        places += min(slow, total)
        if places <= 0 and slow >= len(self._held) - self._ending:
            self._tools.transfer_slots.turn_away_slow()
        moving = len(self._held) - self._ending - slow
        return places if places >= total // 4 or moving <= 0 else 0

    def _take_names(self, options: RunOptions) -> None:
        """Add the named jobs that have arrived since the last call, if any."""
        if options.more is None or self._named is None or not self._expecting:
            return
        names = options.more()
        self._expecting = names is not None
        self._named.update(dict.fromkeys(names or ()))
        if names or not self._expecting:
            self._wake.set()

    def _allowed(self, options: RunOptions) -> int:
        """The number of jobs that this run may still start."""
        if options.limit is None:
            return sys.maxsize
        return max(0, options.limit - self.result.over - len(self._held))

    async def _due(self, options: RunOptions) -> Micros | None:
        """Return when the next job of this run can be claimed, by us or after another worker; None: no job is left."""
        if self._named is not None:
            return await self._ledger.read_async(active_due, options.scope or Scope(), tuple(self._named))
        if options.run_id is not None:
            return await self._ledger.read_async(run_due, options.scope or Scope(), options.run_id)
        types = options.job_types or self._tools.handlers.types()
        return await self._ledger.read_async(work_due, options.scope, types)

    def _waited_enough(self, options: RunOptions) -> bool:
        waited = time.monotonic() - max(self._progress_at, self._tools.silent.byte_at)
        return options.max_wait_s is not None and waited >= options.max_wait_s

    def _gives_up_on_transfers(self, options: RunOptions) -> bool:
        """Stop all transfers if no body byte arrived within `max_wait_s`. Custom jobs have their own time limits."""
        if options.max_wait_s is None or options.forever or self._ending or not self._held:
            return False
        own = any(not kind_of(held.lease.job.job_type).of_url for held in self._held.values())
        if own or not self._waited_enough(options):
            return False
        self.result.left = True
        for held in self._held.values():
            held.stop(Released())
        return True

    def _pause_s(self, due: Micros | None, idle: int) -> float:
        """Wait until a job is due, but at most a second, because other processes may have planned jobs."""
        at_most = ROOM_S if self._disk.full else POLL_S[min(idle, len(POLL_S) - 1)]
        left = at_most if due is None else (due - self._ledger.now()) / SECOND
        return min(left, at_most) if left > 0 else at_most

    async def _rest(self, seconds: float) -> None:
        """Sleep until a lease ends, `notify` is called or the timeout expires."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    # ── one lease ──

    def _start(self, lease: Lease) -> None:
        self._tools.transfer_slots.granted(lease.job.request.host, lease.host_slots)
        held, self._idle_at = RunningLease(lease), None
        self._held[lease.job_id, lease.epoch] = held
        if self._named:
            self._named.pop(lease.job_id, None)
        held.task = asyncio.get_running_loop().create_task(self._work(held))
        held.task.add_done_callback(lambda task: self._after(held, task))

    def _after(self, held: RunningLease, task: asyncio.Task[None]) -> None:
        """Write the outcome of a task that died without one: of a BaseException, or canceled by other code."""
        error = None if task.cancelled() else task.exception()
        if (held.lease.job_id, held.lease.epoch) in self._held and not held.ending:
            outcome: Outcome = Released()  # KeyboardInterrupt, SystemExit: the process ends
            if error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
                outcome = self._ending_of(held.lease, failure_of(error))
            held.task = asyncio.get_running_loop().create_task(self._end(held, outcome))

    async def _work(self, held: RunningLease) -> None:
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
            outcome = self._ending_of(lease, failure_of(error))
        held.working = False
        await self._end(held, outcome)

    def _ending_of(self, lease: Lease, failure: Failure) -> Outcome:
        if failure.reason == "interrupted" or (failure.reason == "host_busy" and failure.host is None):
            return Released(failure.reason)
        if failure.reason == "disk_full" and failure.lack in (None, Lack.FULL):
            self._disk.look()
            if not self._disk.full:  # the disk has space, but not enough for this body
                failure = replace(failure, lack=failure.lack or Lack.NOT_NOW)
        job = lease.job
        past = Past(job.attempts, job.reason, job.request.max_attempts, mirrors.read(job.trail))
        return next_outcome(failure, past, random.random(), self._settings.retry)

    async def _end(self, held: RunningLease, outcome: Outcome) -> None:
        lease, over, held.ending = held.lease, False, True
        outcome = self._refusals.judged(outcome)
        self._ending += 1
        self._wake.set()
        try:
            if held.lost:
                self.result.lost += 1
            else:
                outcome, settled = await self._settled(lease, outcome)
                over = not isinstance(outcome, Deferred | Released)
                self._tools.watch.ended(lease, outcome, settled, self.result)
        except LeaseLost:
            self.result.lost += 1
        except LongshoreError as error:
            log.error("job %s could not be settled: %s", lease.job_id, error)
        finally:
            del self._held[lease.job_id, lease.epoch]
            self._ending -= 1
            if over:
                self._progress_at = time.monotonic()
                self._tools.ahead.ended(self._progress_at)
                self._patience.moved()
            elif self._named is not None:
                self._named[lease.job_id] = None
            self._wake.set()
            with suppress(RuntimeError, MemoryError):  # no thread available: the reconciler cleans up
                self._tools.clean(lease, done=isinstance(outcome, Completed | Reused) and not held.lost)

    async def _settled(self, lease: Lease, outcome: Outcome) -> tuple[Outcome, Settled]:
        """Settle an outcome; if the ledger rejects it, fail the job, or it would be retried for ever."""
        try:
            return outcome, await self._settler.settle(lease, outcome)
        except (LeaseLost, LedgerError):
            raise
        except HookFailed as error:
            outcome = self._ending_of(lease, failure_of(error))
            return outcome, await self._settler.settle(lease, outcome)
        except LongshoreError as error:
            log.error("job %s could not be settled: %s", lease.job_id, error)
            outcome = self._ending_of(lease, Failure("internal_error", f"its end could not be written: {error}"))
            return outcome, await self._settler.settle(lease, outcome)

    # ── leases as a whole ──

    def _leases(self) -> list[Lease]:
        return [held.lease for held in self._held.values()]

    def _on_lost(self, key: tuple[str, int]) -> None:
        if held := self._held.get(key):
            held.stop(None)

    async def _finish(self) -> None:
        """Wait for running transfers within the limit, stop the rest, and write every outcome."""
        self._tools.turn_away()
        tasks = [held.task for held in self._held.values() if held.task]
        if tasks:
            await asyncio.wait(tasks, timeout=self._settings.transfer.drain_s)
        for held in list(self._held.values()):
            held.stop(Released())
        if left := [held.task for held in self._held.values() if held.task]:
            await asyncio.wait(left)
        await self._settler.idle()
