"""How many leases a worker holds ahead: what it finishes within a second, within its bounds."""

from __future__ import annotations

import pytest

from longshore.domain.policy.leases_ahead import LeasesAhead


def at_pace(per_s: float, seconds: float = 5.0) -> tuple[LeasesAhead, float]:
    """Let jobs end evenly for a while."""
    ahead, now = LeasesAhead(12, 496), 100.0
    for number in range(int(per_s * seconds)):
        now = 100.0 + number / per_s
        ahead.ended(now)
    return ahead, now


@pytest.mark.parametrize(
    ("per_s", "least", "most"), [(1, 12, 12), (20, 18, 23), (100, 90, 110), (400, 380, 420), (5_000, 496, 496)]
)
def test_it_holds_what_it_finishes_within_a_second(per_s: float, least: int, most: int) -> None:
    ahead, now = at_pace(per_s)
    assert least <= ahead.count(now) <= most


def test_it_begins_with_the_least() -> None:
    assert LeasesAhead(12, 496).count(7.0) == 12


def test_a_worker_that_becomes_slow_holds_less() -> None:
    ahead, now = at_pace(400)
    assert ahead.count(now + 1) < 100
    assert ahead.count(now + 5) == 12


def test_jobs_that_end_in_batches_count_like_even_ones() -> None:
    ahead = LeasesAhead(12, 10_000)
    for batch in range(20):
        for _ in range(100):
            ahead.ended(batch * 0.25)
    assert 350 <= ahead.count(19 * 0.25 + 0.125) <= 450
