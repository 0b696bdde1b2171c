"""Places for transfers: which transfers count against the limit, and which one gives way. Pure decisions.

Rules. A place is for a transfer that moves. One that moves slower than `FLOOR_BYTES_S` over a window is slow. While others wait
for a place, slow transfers do not count, up to as many extra places as there are places. Beyond that, if a host without slow
transfers waits, the slowest give their places up (`too_slow`: transient, resumed later). Nobody waits: nobody is stopped.
A transfer that waits for our own disk is never slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FLOOR_BYTES_S: Final = 1024.0
WINDOW_S: Final = 2.0  # over which a transfer's speed is measured
STOP_AFTER_S: Final = 4.0  # a transfer has at least this long
MEMORY_S: Final = 30.0  # a host is known as slow for so long after a slow transfer, unless one ends well
SLOW_TURN: Final = 8  # one admission in so many goes to a host with slow transfers, also while others wait


@dataclass(frozen=True, slots=True)
class Runner:
    """One transfer that has a place."""

    key: tuple[str, int]
    rate_bytes_s: float
    age_s: float


def is_slow(gained_bytes: int, seconds: float) -> bool:
    """Return whether a transfer that gained so much in a window does not move."""
    return gained_bytes < FLOOR_BYTES_S * seconds


def room(places: int, taken: int, slow: int) -> int:
    """Return how many more transfers may begin: slow ones do not count, up to as many again as there are places."""
    return places + min(slow, places) - taken


def to_stop(slow: Sequence[Runner], *, room: int, waiting: int) -> list[tuple[str, int]]:
    """Return the slow transfers that give way: as many as wait at hosts that are not slow, the slowest and oldest first."""
    if room > 0 or waiting <= 0:
        return []
    old = sorted((one for one in slow if one.age_s >= STOP_AFTER_S), key=lambda one: (one.rate_bytes_s, -one.age_s))
    return [one.key for one in old[:waiting]]
