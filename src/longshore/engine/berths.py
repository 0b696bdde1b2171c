"""How many transfers run at once in this process: altogether, and at each host. Nobody here waits for politeness in time;
that is decided by what the ledger lets us claim."""

from __future__ import annotations

import asyncio
from collections import deque

from longshore.domain.endings import RESTING
from longshore.domain.reasons import REASONS, reason_named
from longshore.errors import Reasoned

Waiting = tuple[asyncio.Future[None], int]


class Berths:
    """Places for transfers. A lease that was claimed ahead waits here for a place at its host."""

    def __init__(self, places: int, *, breaker_failures: int = 20) -> None:
        self._free = places
        self._breaker = breaker_failures
        self._faults: dict[str, int] = {}  # in a row, by host
        self._at: dict[str, int] = {}
        self._queues: dict[str, deque[Waiting]] = {}
        self._closed = False
        self._turning_away = False
        self._total = places
        self.most = 0
        self.most_at: dict[str, int] = {}  # the peak per host, for tests and telemetry

    def at(self, host: str, limit: int) -> Place:
        """Hold a place at a host that takes `limit` at once: `async with berths.at(host, limit)`."""
        return Place(self, host, limit)

    def left(self, host: str, error: BaseException | None) -> None:
        """Take note of how a transfer ended, and let the next one in."""
        if error is None:
            self._faults.pop(host, None)
        elif isinstance(error, Reasoned):
            self._judge(error.at or host, error)
        self._leave(host)

    def try_take(self, host: str, limit: int) -> bool:
        """Take one more place if there is one right now: for a further connection of a transfer that has its own."""
        if self._free <= 0 or self._closed or self._turning_away or self._at.get(host, 0) >= limit or self._queues:
            return False
        self._enter(host)
        return True

    def give(self, host: str) -> None:
        """Give a place back that `try_take` took."""
        self._leave(host)

    @property
    def free(self) -> int:
        """How many places nobody has."""
        return self._free

    @property
    def busy(self) -> bool:
        """Tell whether transfers go on and others may follow them."""
        return self._free < self._total and not self._closed

    def turn_away(self) -> None:
        """Begin a drain: whoever waits, or comes later, is told `interrupted`."""
        self._turning_away = True
        for queue in self._queues.values():
            for place, _ in queue:
                if not place.done():
                    place.set_exception(_interrupted())
        self._queues.clear()

    def _judge(self, host: str, error: Reasoned) -> None:
        """A host that wants rest, or fails again and again, sees none of those who wait for it: the ledger says when."""
        known = error.reason.startswith("http_") or error.reason in REASONS
        if known and reason_named(error.reason).host_fault:
            self._faults[host] = self._faults.get(host, 0) + 1
        if self._faults.get(host, 0) >= self._breaker or (error.reason in RESTING and error.retry_after_s):
            self._faults.pop(host, None)
            for place, _ in self._queues.pop(host, ()):
                if not place.done():
                    place.set_exception(Reasoned("host_busy", f"{host} rests"))

    def close(self) -> None:
        """Let nobody in for now: too many bytes wait to be published."""
        self._closed = True

    def open(self) -> None:
        """Let waiting transfers in again."""
        if self._closed:
            self._closed = False
            self._admit()

    async def take(self, host: str, limit: int) -> None:
        """Wait for a place."""
        if self._turning_away:
            raise _interrupted()
        if self._free > 0 and not self._closed and self._at.get(host, 0) < limit and host not in self._queues:
            self._enter(host)
            return
        place = asyncio.get_running_loop().create_future()
        self._queues.setdefault(host, deque()).append((place, limit))
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

    def _admit(self) -> None:
        """Let in one per host in turn, as long as there is a place."""
        progress = True
        while progress and self._free > 0 and not self._closed:
            progress = False
            for host in list(self._queues):
                progress |= self._free > 0 and self._admit_at(host)

    def _admit_at(self, host: str) -> bool:
        queue = self._queues.pop(host)
        while queue and queue[0][0].done():  # canceled while waiting
            queue.popleft()
        if not queue:
            return False
        place, limit = queue[0]
        admitted = self._at.get(host, 0) < limit
        if admitted:
            queue.popleft()
            self._enter(host)
            place.set_result(None)
        if queue:
            self._queues[host] = queue  # at the end: the next host's turn
        return admitted


class Place:
    """A place at one host, for the length of a block. (A class, because it is entered once per file.)"""

    __slots__ = ("_berths", "_host", "_limit")

    def __init__(self, berths: Berths, host: str, limit: int) -> None:
        self._berths, self._host, self._limit = berths, host, limit

    async def __aenter__(self) -> None:
        await self._berths.take(self._host, self._limit)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._berths.left(self._host, error)


def _interrupted() -> Reasoned:
    return Reasoned("interrupted", "the worker was stopped")
