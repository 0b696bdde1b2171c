"""Limit the concurrent transfers of this process, in total and per host.

The ledger enforces request rates and pauses at claim time, so no transfer waits for them here. Slow transfers do
not block others (`domain.policy.transfer_slots`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Protocol

from longshore.domain.policy.host_limits import SEVERAL, UNREACHABLE
from longshore.domain.policy.retry import RESTING
from longshore.domain.policy.transfer_slots import (
    MEMORY_S,
    SLOW_TURN,
    WINDOW_S,
    RunningTransfer,
    free_slots,
    is_slow,
    may_have_extra,
    to_stop,
)
from longshore.domain.reasons import REASONS, reason_named
from longshore.errors import Reasoned
from longshore.transfer.segmented import Slots

if TYPE_CHECKING:
    from longshore.domain.model import Lease

Waiting = tuple[asyncio.Future[None], int, float]  # a slot to come, the limit of its host, and since when
Key = tuple[str, int]
KNOWN: Final = 10_000  # hosts whose limits are remembered
LOOK_S: Final = 0.5  # how often the speed of transfers is looked at while others wait


class Transfers(Protocol):
    """The transfers that hold slots."""

    def moved(self, key: Key, /) -> int | None: ...  # noqa: D102
    def give_way(self, key: Key, /) -> None: ...  # noqa: D102


class TransferSlots:
    """The transfer slots of one process. A prefetched lease waits here for a slot at its host."""

    def __init__(self, places: int, *, breaker_failures: int = 20, unreachable_s: float = 30.0) -> None:
        self._free = places
        self._breaker, self._unreachable_s = breaker_failures, unreachable_s
        self._faults: dict[str, int] = {}  # in a row, by host
        self._at: dict[str, int] = {}
        self._limits: dict[str, int] = {}  # by host, from the latest claim
        self._queues: dict[str, deque[Waiting]] = {}
        self._closed = False
        self._turning_away = False
        self._total = places
        self._running: dict[HeldSlot, None] = {}
        self._slow: Counter[str] = Counter()  # slow transfers by host
        self._slow_until: dict[str, float] = {}  # hosts that are known as slow
        self._since_slow = 0  # admissions since the last one of a host with slow transfers
        self._timer: asyncio.TimerHandle | None = None
        self.most = 0
        self.most_at: dict[str, int] = {}  # the peak per host, for tests and telemetry

    def at(self, host: str, limit: int, key: Key = ("", 0), transfers: Transfers | None = None) -> HeldSlot:
        """Hold a slot at a host that takes `limit` at once: `async with slots.at(host, limit)`.

        The transfer `key` of `transfers` is measured and, if it is slow while others wait, stopped.
        """
        return HeldSlot(self, host, limit, key, transfers)

    def granted(self, host: str, limit: int) -> None:
        """Replace a host's limit: the latest claim decides, also for leases that wait since an earlier one."""
        if len(self._limits) >= KNOWN:
            self._limits = {name: kept for name, kept in self._limits.items() if name in self._at}
        self._limits[host] = limit

    def begun(self, place: HeldSlot) -> None:
        """Measure a transfer from now on."""
        place.entered = place.since = asyncio.get_running_loop().time()
        self._running[place] = None

    def over(self, place: HeldSlot, host: str, error: BaseException | None) -> None:
        """Record how a transfer ended, and admit the next one."""
        self._running.pop(place, None)
        self._mark(place, slow=False)
        self.left(host, error)

    @property
    def slow_hosts(self) -> frozenset[str]:
        """Hosts with transfers that do not move, or did not a moment ago."""
        return frozenset(self._slow_until)

    def turn_away_slow(self) -> int:
        """Release the leases that wait for a slot at a host with slow transfers, so that other hosts get the slots."""
        count = 0
        for host in self.slow_hosts:
            for place, *_ in self._queues.pop(host, ()):
                if not place.done():
                    place.set_exception(Reasoned("host_busy", f"{host} is slow"))
                    count += 1
        return count

    def left(self, host: str, error: BaseException | None) -> None:
        """Record how a transfer ended, and admit the next one."""
        if error is None:
            self._faults.pop(host, None)
            self._slow_until.pop(host, None)
        elif isinstance(error, Reasoned):
            self._judge(error.at or host, error)
        self._leave(host)

    def try_take(self, host: str, limit: int) -> bool:
        """Take one more place if there is one right now: for a further connection of a transfer that has its own."""
        if self._free <= 0 or self._closed or self._turning_away or self._queues:
            return False
        if self._at.get(host, 0) >= self._limits.get(host, limit):
            return False
        self._enter(host)
        return True

    def give(self, host: str) -> None:
        """Release a slot that `try_take` acquired."""
        self._leave(host)

    def queued(self, host: str) -> int:
        """Return how many transfers wait for a slot at a host."""
        return len(self._queues.get(host, ()))

    @property
    def free(self) -> int:
        """The number of free slots."""
        return self._free

    @property
    def busy(self) -> bool:
        """Return whether transfers go on and others may follow them."""
        return self._free < self._total and not self._closed

    def turn_away(self) -> None:
        """Begin a drain: current and later waiters fail with `interrupted`."""
        self._turning_away = True
        for queue in self._queues.values():
            for place, *_ in queue:
                if not place.done():
                    place.set_exception(_interrupted())
        self._queues.clear()

    def _judge(self, host: str, error: Reasoned) -> None:
        """Release the waiters of a host that asked for a pause or keeps failing; the ledger decides when to retry."""
        known = error.reason.startswith("http_") or error.reason in REASONS
        if known and reason_named(error.reason).host_fault:
            self._faults[host] = self._faults.get(host, 0) + 1
        faults = self._faults.get(host, 0)
        waited_s = error.facts.get("elapsed_ms", 0.0) / 1000 if error.reason == UNREACHABLE else 0.0
        is_open = faults >= self._breaker or (faults >= SEVERAL and waited_s >= self._unreachable_s)
        if is_open or (error.reason in RESTING and error.retry_after_s):
            self._faults.pop(host, None)
            for place, *_ in self._queues.pop(host, ()):
                if not place.done():
                    place.set_exception(Reasoned("host_busy", f"{host} rests"))

    def close(self) -> None:
        """Stop admitting transfers: too many bytes wait to be published."""
        self._closed = True

    def open(self) -> None:
        """Resume admitting transfers."""
        if self._closed:
            self._closed = False
            self._admit()

    async def take(self, host: str, limit: int) -> None:
        """Wait for a slot."""
        if self._turning_away:
            raise _interrupted()
        if (
            self._room() > 0
            and not self._closed
            and self._at.get(host, 0) < self._limits.get(host, limit)
            and host not in self._queues
        ):
            self._enter(host)
            return
        loop = asyncio.get_running_loop()
        place = loop.create_future()
        self._queues.setdefault(host, deque()).append((place, limit, loop.time()))
        self._watch()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._leave(host)
            raise

    def _enter(self, host: str) -> None:
        self._free -= 1
        self.most = max(self.most, self._total - self._free)
        self._at[host] = count = self._at.get(host, 0) + 1
        if count > self.most_at.get(host, 0):
            self.most_at[host] = count

    def _leave(self, host: str) -> None:
        self._free += 1
        self._at[host] -= 1
        if not self._at[host]:
            del self._at[host]
        self._admit()

    def _room(self) -> int:
        return free_slots(self._total, self._total - self._free, self._slow.total()) if self._slow else self._free

    def _admit(self) -> None:
        """Admit waiting transfers round-robin by host while slots are free. Hosts with slow transfers get fewer."""
        progress = True
        while progress and self._room() > 0 and not self._closed:
            progress = False
            for host in self._turns():
                progress |= self._room() > 0 and self._admit_at(host)
        if self._queues and not self._closed:
            self._admit_starved()

    def _admit_starved(self) -> None:
        """Admit one transfer at each host that has none and has waited too long, beyond the limit."""
        now = asyncio.get_running_loop().time()
        for host, queue in list(self._queues.items()):
            taken, here, waited_s = self._total - self._free, self._at.get(host, 0), now - queue[0][2]
            if may_have_extra(self._total, taken, running_there=here, waited_s=waited_s):
                self._admit_at(host)

    def _turns(self) -> list[str]:
        """Return the hosts whose turn it is."""
        hosts = list(self._queues)
        if not self._slow_until:
            return hosts
        quick = [host for host in hosts if host not in self._slow_until]
        slow = [host for host in hosts if host in self._slow_until][:1]
        return [*slow, *quick] if self._since_slow >= SLOW_TURN else [*quick, *slow]

    # ── transfers that do not move ──

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Measure running transfers, admit waiters beside slow ones, and stop slow ones if that is not enough."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for host in [host for host, until in self._slow_until.items() if until <= now]:
            del self._slow_until[host]
        for place in self._running:
            self._measure(place, now)
        self._admit()
        by_key = {place.key: place for place in self._running if place.slow}
        slow = [RunningTransfer(place.key, place.rate, now - place.entered) for place in by_key.values()]
        for key in to_stop(slow, free_slots=self._room(), waiting=self._kept_out()):
            by_key[key].stop()
        if self._queues:
            self._watch()

    def _measure(self, place: HeldSlot, now: float) -> None:
        took = now - place.since
        if took < WINDOW_S:
            return
        moved = place.moved()
        gained = None if moved is None or place.had is None else moved - place.had if moved >= place.had else moved
        place.since, place.had = now, moved
        if gained is None:
            self._mark(place, slow=False)
            return
        place.rate = gained / took
        self._mark(place, slow=is_slow(gained, took))
        if place.slow:
            self._slow_until[place.host] = now + MEMORY_S

    def _mark(self, place: HeldSlot, *, slow: bool) -> None:
        if slow == place.slow:
            return
        place.slow = slow
        self._slow[place.host] += 1 if slow else -1
        if not self._slow[place.host]:
            del self._slow[place.host]

    def _kept_out(self) -> int:
        """Count the transfers at hosts without slow transfers that only wait for a slot."""
        if self._closed:
            return 0
        count = 0
        for host, queue in self._queues.items():
            if host not in self._slow_until:
                waiting = [limit for place, limit, _ in queue if not place.done()]
                count += max(0, min(len(waiting), max(waiting, default=0) - self._at.get(host, 0)))
        return count

    def _admit_at(self, host: str) -> bool:
        queue = self._queues.pop(host)
        while queue and queue[0][0].done():  # canceled while waiting
            queue.popleft()
        if not queue:
            return False
        place, limit, _ = queue[0]
        admitted = self._at.get(host, 0) < self._limits.get(host, limit)
        if admitted:
            queue.popleft()
            self._enter(host)
            self._since_slow = 0 if host in self._slow_until else self._since_slow + 1
            place.set_result(None)
        if queue:
            self._queues[host] = queue  # at the end: the next host's turn
        return admitted


class HeldSlot:
    """A slot at one host, held for a block. (A class instead of a generator for speed: it is entered once per file.)"""

    __slots__ = ("_limit", "_slots", "entered", "had", "host", "key", "rate", "since", "slow", "transfers")

    def __init__(
        self, transfer_slots: TransferSlots, host: str, limit: int, key: Key, transfers: Transfers | None
    ) -> None:
        self._slots, self.host, self._limit, self.key, self.transfers = transfer_slots, host, limit, key, transfers
        self.entered = self.since = 0.0
        self.had: int | None = 0  # bytes at the beginning of the window; None: it waited for us then
        self.rate, self.slow = 0.0, False

    def moved(self) -> int | None:
        """Return how many bytes the transfer has received; None: it is not to be judged."""
        return None if self.transfers is None else self.transfers.moved(self.key)

    def stop(self) -> None:
        """Stop the transfer as too slow."""
        if self.transfers is not None:
            self.transfers.give_way(self.key)

    async def __aenter__(self) -> None:
        await self._slots.take(self.host, self._limit)
        self._slots.begun(self)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._slots.over(self, self.host, error)


class HostSlots(Slots):
    """Slots for additional connections of one transfer: each connection needs its own slot at the host."""

    def __init__(self, transfer_slots: TransferSlots, lease: Lease) -> None:
        self._slots, self._host, self._limit = transfer_slots, lease.job.request.host, lease.host_slots

    def take(self) -> bool:
        """Acquire a slot if one is free and no transfer waits for it."""
        return self._slots.try_take(self._host, self._limit)

    def give(self) -> None:
        """Release the slot."""
        self._slots.give(self._host)


def _interrupted() -> Reasoned:
    return Reasoned("interrupted", "the worker was stopped")
