"""How fast transfers are: measured between looks at their progress, smoothed over some seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from longshore.domain.model import SECOND, Micros
from longshore.ledger.queries.throughput import Transfer

OVER_S: Final = 15.0  # a rate is measured over this time
LEAST_S: Final = 2.0  # progress is stored every two seconds: less would show its steps
KEPT: Final = 10_000  # transfers


@dataclass(frozen=True, slots=True)
class Moving:
    """One transfer's rate, and how long it will take; None: not known."""

    rate_bytes_s: float | None
    eta_s: float | None


@dataclass(slots=True)
class Rates:
    """The progress of transfers as it was seen lately."""

    _seen: dict[tuple[str, int], deque[tuple[Micros, int]]] = field(default_factory=dict)

    def measured(self, one: Transfer, done: int, total: int | None, now: Micros) -> Moving:
        """Note how far a transfer is now, and return its rate."""
        seen = self._seen.setdefault((one.job.job_id, one.job.lease_epoch), deque(maxlen=64))
        if not seen or now > seen[-1][0]:
            seen.append((now, done))
        while len(seen) > 2 and now - seen[1][0] >= OVER_S * SECOND:
            seen.popleft()
        rate = _between(seen[0], (now, done))
        if rate is None:  # seen once: the mean since its first byte
            rate = _between((one.begun_at, one.resumed_from), (now, done))
        left = None if total is None or not rate else max(0, total - done) / rate
        return Moving(rate, left)

    def forget(self, live: Iterable[Transfer]) -> None:
        """Drop the samples of transfers that are over."""
        if len(self._seen) > KEPT:
            names = {(one.job.job_id, one.job.lease_epoch) for one in live}
            self._seen = {name: seen for name, seen in self._seen.items() if name in names}


def _between(first: tuple[Micros, int], last: tuple[Micros, int]) -> float | None:
    seconds = (last[0] - first[0]) / SECOND
    return max(0.0, (last[1] - first[1]) / seconds) if seconds >= LEAST_S else None
