"""Refusals in a row that one setting is to blame for: the queue behind them stays pending."""

from __future__ import annotations

from longshore.domain.outcomes import Canceled, Completed, Deferred, Failed, Outcome, Released
from longshore.domain.policy.refusals import Refusals

REFUSED = Failed("forbidden_address", "x")


def judged(refusals: Refusals, *outcomes: Outcome) -> list[Outcome]:
    return [refusals.judged(one) for one in outcomes]


def test_the_refusal_at_the_limit_is_the_last_that_fails() -> None:
    refusals = Refusals(3)
    assert judged(refusals, REFUSED, REFUSED) == [REFUSED, REFUSED]
    assert refusals.reason is None
    assert judged(refusals, REFUSED, REFUSED, REFUSED) == [REFUSED, *[Released("forbidden_address")] * 2]
    assert [refusals.reason, refusals.in_a_row] == ["forbidden_address", 3]


def test_other_ends_begin_the_count_anew_and_waiting_does_not() -> None:
    for other, counts in ((Completed(()), False), (Failed("http_404", "x"), False), (Canceled(), True)):
        refusals = Refusals(2)
        judged(refusals, REFUSED, other, REFUSED)
        assert (refusals.reason is not None) is counts, other
    refusals = Refusals(2)
    judged(refusals, REFUSED, Deferred("http_503", "x", 1.0), REFUSED)
    assert refusals.reason == "forbidden_address"


def test_after_the_stop_other_outcomes_are_written_as_they_are() -> None:
    refusals = Refusals(1)
    other = Failed("http_404", "x")
    assert judged(refusals, REFUSED, other, REFUSED) == [REFUSED, other, Released("forbidden_address")]


def test_zero_is_no_limit() -> None:
    refusals = Refusals(0)
    assert judged(refusals, *[REFUSED] * 100) == [REFUSED] * 100
    assert refusals.reason is None
