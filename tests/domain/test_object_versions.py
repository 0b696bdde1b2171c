"""One version of one object: every pair of facts, compared exhaustively."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.domain.identity.object_versions import NO_CALLER, Proof, Version, caller_of, difference, varies_always
from longshore.domain.model import Validators

A, B = "http://a.example/x", "http://b.example/x"
OLD, NEW = "Mon, 06 Jan 2025 10:00:00 GMT", "Tue, 07 Jan 2025 09:00:00 GMT"
ALL = [
    Version(asked, final, Validators(etag, date), total, digests, caller)
    for asked, final, etag, date, total, digests, caller in product(
        (None, A, B),
        (None, A, B),
        (None, '"1"', '"2"'),
        (None, OLD, NEW),
        (None, 1, 2),
        ({}, {"sha256": "00"}),
        ("", "c"),
    )
]


def test_the_whole_table() -> None:
    """Only answers that agree in everything that both name, and that name what the proof needs, are one version."""
    stored = [version for version in ALL if version.caller == ""][::7]
    for one, other, proof in product(stored, ALL[::3], Proof):
        expected = (
            one.asked is not None
            and one.final is not None
            and (one.asked, one.final, one.caller) == (other.asked, other.final, other.caller)
            and not _differ(one.total, other.total)
            and not _differ(one.digests.get("sha256"), other.digests.get("sha256"))
            and not _differ(one.validators.etag, other.validators.etag)
            and not (one.validators.etag is None and other.validators.etag is not None)  # a tag that appears
            and not _differ(one.validators.last_modified, other.validators.last_modified)
            and (proof is not Proof.ETAG or other.validators.etag is not None)
            and (proof is not Proof.DATE or other.validators.last_modified is not None)
        )
        assert (difference(one, other, proof) is None) is expected, (one, other, proof)


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


SAME = Version(A, A, Validators('"1"', OLD), 10, {"sha256": "00"})


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (SAME, None),
        (Version(B, A, SAME.validators), "other_url"),
        (Version(A, A, SAME.validators, caller="bob"), "other_caller"),
        (Version(A, B, SAME.validators), "other_final_url"),
        (Version(A, A, SAME.validators, 11), "total_mismatch"),
        (Version(A, A, SAME.validators, 10, {"sha256": "01"}), "digests_mismatch"),
        (Version(A, A, Validators('"2"', OLD)), "validators_mismatch"),
        (Version(A, A, Validators('"1"', NEW)), "validators_mismatch"),
        (Version(A, A, Validators(None, OLD)), "validators_missing"),
    ],
)
def test_reasons(answer: Version, why: str | None) -> None:
    assert difference(SAME, answer, Proof.ETAG) == why


def test_a_304_may_leave_validators_out_but_not_contradict() -> None:
    assert difference(SAME, Version(A, A, Validators()), Proof.UNCHANGED) is None
    assert difference(SAME, Version(A, A, Validators('"2"')), Proof.UNCHANGED) == "validators_mismatch"
    assert difference(SAME, Version(A, B, Validators('"1"')), Proof.UNCHANGED) == "other_final_url"


def test_callers() -> None:
    assert caller_of([]) == NO_CALLER
    alice, bob = caller_of([("Authorization", "alice")]), caller_of([("Authorization", "bob")])
    assert len({alice, bob, NO_CALLER}) == 3
    assert alice == caller_of([("authorization", " alice ")])
    assert caller_of([("A", "1"), ("B", "2")]) == caller_of([("b", "2"), ("a", "1")])
    assert caller_of([("A", "1"), ("A", "2")]) != caller_of([("A", "2"), ("A", "1")]), "order counts within one field"
    assert "alice" not in alice


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=4))
def test_a_caller_is_a_hash(headers: list[tuple[str, str]]) -> None:
    assert len(caller_of(headers)) == (64 if headers else 0)


@pytest.mark.parametrize(
    ("vary", "always"), [(None, False), ("", False), ("Cookie", False), ("*", True), ("a, *", True)]
)
def test_vary(vary: str | None, always: bool) -> None:
    assert varies_always(vary) is always
