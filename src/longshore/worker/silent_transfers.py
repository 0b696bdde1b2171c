"""Detect transfers that receive no body bytes, so that a run that waits for them can report their hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

Key = tuple[str, int]
Transfers = Callable[[], Mapping[Key, tuple[str, int]]]  # by lease: the host and the bytes received


class Silence(NamedTuple):
    """Transfers that wait for one host."""

    host: str
    jobs: int
    since: float  # of the one that waits longest


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
        self._moved: dict[Key, tuple[str, int, float]] = {}
        self._last_byte = last_byte

    @property
    def byte_at(self) -> float:
        """When a body byte last arrived in any transfer, also one that has ended."""
        return self._last_byte.at

    def look(self, now: float) -> None:
        """Check all transfers."""
        before, self._moved = self._moved, {}
        for key, (host, received) in self._transfers().items():
            _, had, since = before.get(key, (host, 0, now))
            self._moved[key] = (host, received, since if received == had else now)

    def longer_than(self, seconds: float, now: float) -> list[Silence]:
        """Return the hosts whose transfers have received nothing for this long, as of the last check."""
        found: dict[str, Silence] = {}
        for host, _, since in self._moved.values():
            if now - since >= seconds:
                one = found.get(host, Silence(host, 0, since))
                found[host] = Silence(host, one.jobs + 1, min(one.since, since))
        return list(found.values())
