"""Detect transfers that receive no body bytes, so that a run that waits for them can report their hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

Key = tuple[str, int]


class Waiting(NamedTuple):
    """A transfer that waits for a server."""

    host: str
    received: int  # bytes
    connected: bool


Transfers = Callable[[], Mapping[Key, Waiting]]  # by lease


class Silence(NamedTuple):
    """Transfers that wait for one host."""

    host: str
    jobs: int
    since: float  # of the one that waits longest
    connected: bool  # one of them is


class LastByte:
    """When a body byte last arrived, in any transfer. The sinks set it: a short attempt can begin and end between two
    checks of `SilentTransfers`."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = 0.0  # of the monotonic clock


class SilentTransfers:
    """Records when each transfer last received bytes, as of the last check."""

    def __init__(self, transfers: Transfers, last_byte: LastByte) -> None:
        self._transfers = transfers
        self._moved: dict[Key, tuple[Waiting, float]] = {}
        self._last_byte = last_byte

    @property
    def byte_at(self) -> float:
        """When a body byte last arrived in any transfer, also one that has ended."""
        return self._last_byte.at

    def look(self, now: float) -> None:
        """Check all transfers."""
        before, self._moved = self._moved, {}
        for key, one in self._transfers().items():
            had, since = before.get(key, (one, now))
            has_moved = (one.received, one.connected) != (had.received, had.connected)
            self._moved[key] = (one, now if has_moved else since)

    def longer_than(self, seconds: float, now: float) -> list[Silence]:
        """Return the hosts with transfers that have received nothing for this long, as of the last check. Those that
        began later, and have received nothing either, count."""
        found: dict[str, Silence] = {}
        for one, since in self._moved.values():
            if not one.received or now - since >= seconds:
                known = found.get(one.host, Silence(one.host, 0, since, connected=False))
                connected = known.connected or one.connected
                found[one.host] = Silence(one.host, known.jobs + 1, min(known.since, since), connected)
        return [one for one in found.values() if now - one.since >= seconds]
