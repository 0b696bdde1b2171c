"""Decide which transfers count against the transfer limit, and which are stopped for others. Pure functions.

A transfer slower than `FLOOR_BYTES_S` over a window is slow. While others wait for a slot, slow transfers do not count
against the limit, up to as many extra slots as there are slots. Beyond that, if a host without slow transfers waits,
the slowest transfers are stopped (`too_slow`: transient, resumed later). If no transfer waits, none is stopped. A
transfer that waits for the local disk is never slow.

A speed alone does not decide who starves: a few hosts that send just above the floor could hold every slot for days. So a
host at which no transfer runs, and whose first waiter has waited for `STARVED_S`, gets one slot beyond the limit, again
up to as many extra slots as there are slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FLOOR_BYTES_S: Final = 1024.0
WINDOW_S: Final = 2.0  # over which a transfer's speed is measured
STOP_AFTER_S: Final = 4.0  # a transfer has at least this long
MEMORY_S: Final = 30.0  # a host is known as slow for so long after a slow transfer, unless one ends well
STARVED_S: Final = 5.0  # a host waits no longer than this for its first slot
SLOW_TURN: Final = 8  # one admission in so many goes to a host with slow transfers, also while others wait


@dataclass(frozen=True, slots=True)
class RunningTransfer:
    """One transfer that has a place."""

    key: tuple[str, int]
    rate_bytes_s: float
    age_s: float


def is_slow(gained_bytes: int, seconds: float) -> bool:
    """Return whether a transfer that gained so much in a window does not move."""
    return gained_bytes < FLOOR_BYTES_S * seconds


def free_slots(places: int, taken: int, slow: int) -> int:
    """Return how many more transfers may begin: slow ones do not count, up to as many again as there are places."""
    return places + min(slow, places) - taken


def may_have_extra(places: int, taken: int, *, running_there: int, waited_s: float) -> bool:
    """Return whether a host gets a slot beyond the limit because it has none and has waited long enough."""
    return running_there == 0 and waited_s >= STARVED_S and taken < 2 * places


def to_stop(slow: Sequence[RunningTransfer], *, free_slots: int, waiting: int) -> list[tuple[str, int]]:
    """Return the transfers to stop: one per waiter at a host that is not slow; the slowest and oldest first."""
    if free_slots > 0 or waiting <= 0:
        return []
    old = sorted((one for one in slow if one.age_s >= STOP_AFTER_S), key=lambda one: (one.rate_bytes_s, -one.age_s))
    return [one.key for one in old[:waiting]]
