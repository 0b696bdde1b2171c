"""What arrived when, for the throughput chart: read from the ledger once, then only what is new.

A small body counts when it is registered. A large one counts while it arrives: its bytes are spread evenly from its first
byte to its last, or to now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from longshore.domain.model import SECOND, Micros, Scope
from longshore.ledger import Ledger
from longshore.ledger.queries.throughput import LongArrival, Transfer, arrivals, long_arrivals, transfers
from longshore.ledger.transaction import Tx
from longshore.web.dashboard.throughput import Slot, Span, Window, slots, spread

SETTLED_S: Final = 120  # slots older than this do not change any more: ids are given shortly before their commit
KEPT: Final = 1_000  # charts

Registered = list[tuple[Micros, int, int]]


@dataclass(slots=True)
class _Known:
    """What was read for one chart."""

    registered: dict[Micros, tuple[int, int]] = field(default_factory=dict)  # files and bytes by slot
    long: dict[str, LongArrival] = field(default_factory=dict)


class Arrivals:
    """The charts' data of one server."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[tuple[Scope, str], _Known] = {}

    async def read(self, scope: Scope, window: Window) -> tuple[Micros, list[Slot], list[Transfer]]:
        """Return the time, the chart's slots and the transfers under way; read only what may have changed."""
        known = self._known.setdefault((scope, window.name), _Known())
        if len(self._known) > KEPT:
            self._known.pop(next(iter(self._known)))
        newest = max(known.registered, default=0)

        def since(now: Micros) -> Micros:
            start = max(window.start(now), newest - SETTLED_S * SECOND)
            return start - start % (window.slot_s * SECOND)

        now, rows, long, moving = await self._ledger.read_async(_read, scope, since, window.slot_s)
        start = window.start(now)
        known.registered.update((at, (files, size)) for at, files, size in rows)
        known.registered = {at: row for at, row in known.registered.items() if at >= start}
        known.long.update((one.artifact_id, one) for one in long)
        known.long = {name: one for name, one in known.long.items() if one.ended_at >= start}
        return now, slots(window, now, _rows(known, window, now, moving)), moving


def _read(
    tx: Tx, scope: Scope, since: Callable[[Micros], Micros], slot_s: int
) -> tuple[Micros, Registered, list[LongArrival], list[Transfer]]:
    now, rows = arrivals(tx, scope, since, slot_s)
    return now, rows, long_arrivals(tx, scope, since(now)), transfers(tx, scope)


def _rows(known: _Known, window: Window, now: Micros, moving: Sequence[Transfer]) -> Registered:
    """Return the bytes of large bodies in the slots in which they arrived, and everything else as it was registered."""
    step = window.slot_s * SECOND
    rows = [(at, files, size) for at, (files, size) in known.registered.items()]
    rows += [(one.ended_at - one.ended_at % step, 0, -one.size_bytes) for one in known.long.values()]
    spans = [Span(one.begun_at, one.ended_at, one.size_bytes - one.resumed_from) for one in known.long.values()]
    spans = [span if span.end > span.begin else Span(span.end - 1, span.end, span.size_bytes) for span in spans]
    return rows + spread(window, now, [*spans, *spans_of(moving, now)])


def spans_of(moving: Sequence[Transfer], now: Micros) -> list[Span]:
    """Return the bytes of transfers under way, from their first byte until now."""
    return [Span(one.begun_at, now, max(0, (one.job.bytes_done or 0) - one.resumed_from)) for one in moving]
