"""A worker's background tasks: cancel requests, dead workers, wake-ups by other processes, and maintenance."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from longshore import failpoints
from longshore.domain.model import SECOND, Scope
from longshore.errors import LedgerError, Locked, LongshoreError
from longshore.ledger.operations.give_up_host import give_up_host
from longshore.ledger.operations.hosts import given_up_hosts, pending_by_host
from longshore.ledger.queries.due_work import Wait, stops_wanted, waits, waits_of

if TYPE_CHECKING:
    from longshore.domain.model import Micros
    from longshore.worker.loop import Worker
    from longshore.worker.run_types import WorkerContext

log = logging.getLogger(__name__)
failpoints.declare("abandon.before", "abandon.after")
LOOK_S: Final = 1.0
NEIGHBOURS_S: Final = 5.0
QUIET_S: Final = 2.0  # nothing moved for so long: say why
SAY_AGAIN_S: Final = 30.0
BUSY_LOOK_S: Final = 5.0  # how often a run that has work looks for hosts that rest
REST_S: Final = 5.0  # a rest that ends sooner is not told while there is other work
SILENT_S: Final = 5.0  # a host that was asked and has sent nothing for so long is named
BURST: Final = 50  # failures since the last look from which rows and files are compared before their time


class BackgroundTasks:
    """Runs beside one worker, for as long as the block lasts."""

    def __init__(self, worker: Worker, tools: WorkerContext) -> None:
        self._worker, self._tools = worker, tools
        self._tasks: list[asyncio.Task[None]] = []
        self._unwatch: Callable[[], None] | None = None
        self._told_silent: dict[str, float] = {}  # hosts, and from when on they are told again
        self._failing: asyncio.Task[bool] | None = None  # a batch of jobs that fail with their host

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._kept_up(work))
            for work in (self._stops, self._neighbours, self._house, self._dead_hosts, self._waits)
        ]
        if watch := getattr(self._tools.ledger.backend, "watch", None):
            self._unwatch = watch(self._worker.notify)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._unwatch:
            self._unwatch()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._failing:  # a run can see that no job is left before it counted the last ones
            await asyncio.gather(self._failing, return_exceptions=True)

    async def _kept_up(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Restart a background task that an unexpected error ended, and log the error."""
        while True:
            try:
                return await work()
            except Exception:
                log.exception("%s was ended by an error and begins again", work.__name__)
                await asyncio.sleep(NEIGHBOURS_S)

    async def _stops(self) -> None:
        """Stop running jobs within a second of a cancel request."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._worker.holding:
                with suppress(LedgerError):
                    self._worker.cancel(await self._tools.ledger.read_async(stops_wanted, self._tools.owner))

    async def _neighbours(self) -> None:
        """Release the leases of processes on this machine that died during the run."""
        while True:
            await asyncio.sleep(NEIGHBOURS_S)
            with suppress(LedgerError):
                if await self._tools.release_dead_owners():
                    self._worker.notify()

    async def _dead_hosts(self) -> None:
        """Fail the jobs that wait for a host that was given up, in batches."""
        tools = self._tools
        done: dict[str, Micros] = {}  # the verdicts that were carried out
        while True:
            await asyncio.sleep(LOOK_S)
            with suppress(LedgerError):
                given = await tools.ledger.read_async(given_up_hosts, defaults=tools.hosts)
                for host, verdict in given.items():
                    if done.get(host) != verdict:
                        await self._abandon(host)
                        done[host] = verdict

    async def _abandon(self, host: str) -> None:
        more = True
        while more:
            self._failing = asyncio.create_task(self._fail_batch(host))
            more = await asyncio.shield(self._failing)
        self._worker.notify()

    async def _fail_batch(self, host: str) -> bool:
        """Fail some of the jobs that wait for a host, and count them; return whether more are left."""
        tools = self._tools
        failpoints.hit("abandon.before")
        batch = await tools.ledger.write_async(
            give_up_host, host, defaults=tools.hosts, max_attempts=tools.settings.retry.max_attempts
        )
        failpoints.hit("abandon.after")
        self._worker.abandoned(batch.failed)
        return batch.more

    async def _waits(self) -> None:
        """Report what jobs wait for, and repeat it periodically: everything once nothing moves, before that only hosts
        that rest for a while, because a full host and a short delay are normal."""
        tools, said_at, said, looked_at = self._tools, 0.0, set[tuple[str | None, str]](), 0.0
        while tools.watch.listening:
            await asyncio.sleep(LOOK_S)
            await self._tell_silence()
            is_idle, now = self._worker.idle_s >= QUIET_S, time.monotonic()
            if not is_idle and now - looked_at < BUSY_LOOK_S:
                continue
            looked_at = now
            with suppress(LedgerError):
                found = await self._found_waits()
                if not is_idle:
                    found = [wait for wait in found if _is_rest(wait, tools.ledger.now())]
                names = {wait[:2] for wait in found}
                if names - said or (found and now - said_at >= SAY_AGAIN_S):
                    said_at = now
                    for wait in found:
                        until = iso(wait.until) if wait.until is not None else None
                        tools.watch.tell("waiting", host=wait.host, reason=wait.reason, until=until, jobs=wait.jobs)
                said = names

    async def _found_waits(self) -> list[Wait]:
        """Return what the jobs of this run wait for: the named ones, or all."""
        tools, scope, named = self._tools, self._worker.scope, self._worker.unclaimed
        if named is None:
            return await tools.ledger.read_async(waits, scope, tools.owner, tools.hosts)
        return await tools.ledger.read_async(waits_of, scope or Scope(), tools.owner, tools.hosts, named)

    async def _tell_silence(self) -> None:
        """Report hosts that do not answer, each repeatedly at intervals, with all jobs that wait for them."""
        now, tools = time.monotonic(), self._tools
        tools.silent.look(now)
        found = tools.silent.longer_than(SILENT_S, now)
        fresh = [one for one in found if now >= self._told_silent.get(one.host, 0.0)]
        if not fresh:
            return
        limits = tools.settings.transfer
        for one in fresh:
            ends_s = one.since + (limits.stall_s if one.connected else limits.connect_s) - now
            ends_s = max(0.0, ends_s)
            self._told_silent[one.host] = now + min(SAY_AGAIN_S, ends_s)
            until = iso(tools.ledger.now() + int(ends_s * SECOND))
            reason = "silent" if one.connected else "connecting"
            jobs = one.jobs + tools.transfer_slots.queued(one.host) + await self._pending(one.host)
            tools.watch.tell("waiting", host=one.host, reason=reason, until=until, jobs=jobs)

    async def _pending(self, host: str) -> int:
        """Count the pending jobs of a host that the jobs under way speak for."""
        with suppress(LedgerError):
            scope = self._worker.scope or Scope()
            return (await self._tools.ledger.read_async(pending_by_host, scope, host)).get(host, 0)
        return 0

    async def _house(self) -> None:
        """Run maintenance: a quick check at the start, a full one periodically or after a burst of failures."""
        await self._reconcile(full=False)
        looked, failed = time.monotonic(), 0
        while True:
            await asyncio.sleep(min(LOOK_S, self._tools.settings.reconcile.interval_s))
            burst = self._worker.result.failed - failed >= BURST
            if burst or time.monotonic() - looked >= self._tools.settings.reconcile.interval_s:
                await self._reconcile(full=True)
                looked, failed = time.monotonic(), self._worker.result.failed

    async def _reconcile(self, *, full: bool) -> None:
        try:
            await asyncio.to_thread(self._tools.reconcile, full)
        except Locked:
            pass  # another process is at it
        except (LongshoreError, OSError) as error:
            log.warning("reconciling did not work: %s", error)


def _is_rest(wait: Wait, now: Micros) -> bool:
    """Return whether jobs wait for a host that is not asked for a while."""
    if wait.host is None or wait.reason in ("host_busy", "offline"):
        return False
    return wait.until is None or wait.until - now >= REST_S * SECOND


def iso(at: Micros) -> str:
    """Write a time of the ledger for people and programs."""
    return datetime.fromtimestamp(at / SECOND, UTC).isoformat(timespec="seconds")
