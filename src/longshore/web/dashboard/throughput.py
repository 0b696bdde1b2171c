"""Throughput by time slots. Pure: one `now` goes in, and every slot is computed from it.

Rows may lie before the first slot or after `now` (another machine's clock, a row that was written between two calls);
they are dropped or counted in the newest slot, so that no index can ever be out of range.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from longshore.domain.model import SECOND, Micros


@dataclass(frozen=True, slots=True)
class Window:
    """Time range of a chart and its number of slots."""

    name: str
    slot_s: int
    slots: int

    def start(self, now: Micros) -> Micros:
        """Return the start of the oldest slot; slots start at whole multiples, so that a bar keeps its position."""
        newest = now // (self.slot_s * SECOND)
        return (newest - self.slots + 1) * self.slot_s * SECOND


SHORTEST_S: Final = 5.0  # a rate over less than this is noise
WINDOWS: Final = {w.name: w for w in (Window("5m", 5, 60), Window("1h", 60, 60), Window("24h", 900, 96))}


@dataclass(frozen=True, slots=True)
class Slot:
    """One bar of the chart."""

    at: Micros
    files: int
    size_bytes: int

    def lasted_s(self, window: Window, now: Micros) -> float:
        """Return how much of the slot is over: the newest is not divided by its whole length."""
        return min(float(window.slot_s), max(SHORTEST_S, (now - self.at) / SECOND))


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes that arrived from one time to another, as evenly as is known."""

    begin: Micros
    end: Micros
    size_bytes: int


def spread(window: Window, now: Micros, spans: Iterable[Span]) -> list[tuple[Micros, int, int]]:
    """Return rows (time, no files, bytes) with the bytes of each span in the slots in which they arrived."""
    step, start = window.slot_s * SECOND, window.start(now)
    found: dict[Micros, float] = {}
    for span in spans:
        length = span.end - span.begin
        at = max(span.begin, start)
        while at < span.end:
            slot = at - at % step
            until = min(slot + step, span.end)
            found[slot] = found.get(slot, 0.0) + span.size_bytes * (until - at) / length
            at = until
    return [(slot, 0, round(size)) for slot, size in found.items()]


def slots(window: Window, now: Micros, rows: Iterable[tuple[Micros, int, int]]) -> list[Slot]:
    """Sort rows (time, files, bytes) into the window that ends at `now`."""
    start, step = window.start(now), window.slot_s * SECOND
    files, sizes = [0] * window.slots, [0] * window.slots
    for at, count, size in rows:
        if at >= start:
            index = min((at - start) // step, window.slots - 1)
            files[index] += count
            sizes[index] += size
    return [Slot(start + i * step, files[i], sizes[i]) for i in range(window.slots)]
