"""Retry delays: full jitter under an exponential ceiling, and the server's own word."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longshore.domain.policy.backoff import retry_delay_s
from longshore.errors import BadInput

STEADY = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
draws = st.floats(0, 1, exclude_max=True, allow_nan=False)


@pytest.mark.parametrize(
    ("attempt", "draw", "delay"),
    [(1, 0.0, 0.0), (1, 0.5, 0.5), (2, 0.5, 1.0), (5, 0.25, 4.0), (13, 0.5, 1800.0), (10_000, 0.5, 1800.0)],
)
def test_golden_delays(attempt: int, draw: float, delay: float) -> None:
    assert retry_delay_s(attempt, draw, base_s=1, cap_s=3600) == delay


@STEADY
@given(st.integers(1, 10_000), draws, st.floats(0, 100), st.floats(0, 100_000))
def test_a_delay_lies_under_its_ceiling(attempt: int, draw: float, base_s: float, cap_s: float) -> None:
    delay = retry_delay_s(attempt, draw, base_s=base_s, cap_s=cap_s)
    assert 0 <= delay <= cap_s
    assert delay <= base_s * 2.0 ** min(attempt - 1, 62)


@STEADY
@given(st.integers(1, 100), draws, st.floats(0, 86_400))
def test_never_before_the_servers_word(attempt: int, draw: float, retry_after_s: float) -> None:
    delay = retry_delay_s(attempt, draw, base_s=1, cap_s=3600, retry_after_s=retry_after_s)
    assert delay >= retry_after_s


def test_a_server_cannot_park_a_job_for_ever() -> None:
    assert retry_delay_s(1, 0.0, base_s=1, cap_s=3600, retry_after_s=10.0**12) == 86_400.0


@pytest.mark.parametrize(("attempt", "draw"), [(0, 0.5), (-1, 0.5), (1, 1.0), (1, -0.1), (1, float("nan"))])
def test_nonsense_is_refused(attempt: int, draw: float) -> None:
    with pytest.raises(BadInput):
        retry_delay_s(attempt, draw, base_s=1, cap_s=3600)
