"""The chart's slots: from one `now`, never out of range."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from longshore.domain.model import SECOND
from longshore.web.dashboard.throughput import WINDOWS, slots

T = 1_800_000_000 * SECOND


@given(
    window=st.sampled_from(sorted(WINDOWS)),
    now=st.integers(T, T + 86_400 * SECOND),
    rows=st.lists(
        st.tuples(st.integers(-2 * 86_400 * SECOND, 2 * 86_400 * SECOND), st.integers(0, 9), st.integers(0, 1 << 40))
    ),
)
def test_every_row_of_the_window_is_in_exactly_one_slot(
    window: str, now: int, rows: list[tuple[int, int, int]]
) -> None:
    """Also rows from after `now` (another clock, or the clock passed a minute between two calls), and from long before."""
    chosen = WINDOWS[window]
    moved = [(now + offset, files, size) for offset, files, size in rows]
    found = slots(chosen, now, moved)
    inside = [row for row in moved if row[0] >= chosen.start(now)]
    assert len(found) == chosen.slots
    assert sum(slot.files for slot in found) == sum(row[1] for row in inside)
    assert sum(slot.size_bytes for slot in found) == sum(row[2] for row in inside)
    assert all(b.at - a.at == chosen.slot_s * SECOND for a, b in pairwise(found))
    assert found[-1].at <= now < found[-1].at + chosen.slot_s * SECOND


@given(window=st.sampled_from(sorted(WINDOWS)), now=st.integers(T, T + 3600 * SECOND))
def test_a_row_of_the_last_microsecond_is_in_the_newest_slot(window: str, now: int) -> None:
    found = slots(WINDOWS[window], now, [(now, 1, 5)])
    assert (found[-1].files, found[-1].size_bytes) == (1, 5)
