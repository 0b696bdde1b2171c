"""The resume ladder: every cell of {validator kept} × {server's answer} has its expected decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.domain.model import Validators
from longshore.domain.transfer.ranges import ContentRange
from longshore.domain.transfer.response_head import Head
from longshore.domain.transfer.resume import (
    ComparePrefix,
    Continue,
    Decision,
    Finished,
    FromOffset,
    FromZero,
    Restart,
    decide,
    plan,
    strong_validator,
)

URL = "http://a.example/x"
TOTAL, HAVE = 1000, 400
OLD = "Mon, 06 Jan 2025 10:00:00 GMT"
YOUNG = "Tue, 07 Jan 2025 09:59:30 GMT"
DATE = "Tue, 07 Jan 2025 10:00:00 GMT"
NEW = "Tue, 07 Jan 2025 09:00:00 GMT"


V1 = Validators('"v1"')


@dataclass(frozen=True)
class Part:
    validators: Validators = V1
    total: int | None = TOTAL
    durable_bytes: int = HAVE
    url: str = URL
    final_url: str | None = URL
    headers: Mapping[str, str] | None = field(default_factory=dict)


# What was kept → what is asked for.
KEPT = {
    "strong": Validators('"v1"', OLD),
    "weak": Validators('W/"v1"', OLD),
    "none": Validators(),
    "date": Validators(None, OLD),
    "young_date": Validators(None, YOUNG),
}
CHANGED = {
    "strong": Validators('"v2"', NEW),
    "weak": Validators('W/"v2"', NEW),
    "none": Validators(),
    "date": Validators(None, NEW),
    "young_date": Validators(None, NEW),
}


@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        ("strong", FromOffset(HAVE, '"v1"', "ok")),
        ("weak", FromZero("validators_weak")),
        ("none", FromZero("validators_missing")),
        ("date", FromOffset(HAVE, OLD, "ok")),
        ("young_date", FromZero("validators_weak")),
    ],
)
def test_plan(kept: str, asked: object) -> None:
    assert plan(Part(KEPT[kept]), URL, answered=DATE) == asked


@pytest.mark.parametrize(
    ("part", "asked"),
    [
        (None, FromZero("no_part")),
        (Part(durable_bytes=0), FromZero("no_part")),
        (Part(url="http://other.example/"), FromZero("other_url")),
        (Part(durable_bytes=TOTAL + 1), FromZero("part_too_long")),
        (Part(durable_bytes=TOTAL), Finished("complete")),
        (Part(durable_bytes=TOTAL, headers=None), FromZero("head_unknown")),
        (Part(total=None), FromOffset(HAVE, '"v1"', "ok")),
    ],
)
def test_plan_of_odd_parts(part: Part | None, asked: object) -> None:
    assert plan(part, URL, answered=DATE) == asked


@pytest.mark.parametrize("kept", ["weak", "none", "young_date"])
def test_without_validators_only_by_overlap_and_only_when_configured(kept: str) -> None:
    part = Part(KEPT[kept])
    assert plan(part, URL, answered=DATE, overlap_bytes=100, without_validators=True) == FromOffset(
        300, None, "unvalidated"
    )
    assert plan(part, URL, answered=DATE, overlap_bytes=900, without_validators=True) == FromOffset(
        0, None, "unvalidated"
    )
    assert isinstance(plan(part, URL, answered=DATE, overlap_bytes=0, without_validators=True), FromZero)
    assert isinstance(plan(part, URL, answered=DATE, overlap_bytes=100), FromZero)


def test_a_date_is_strong_when_it_is_old_and_alone() -> None:
    assert strong_validator(Validators(None, OLD), DATE) == OLD
    assert strong_validator(Validators(None, YOUNG), DATE) is None
    assert strong_validator(Validators(None, OLD), None) is None
    assert strong_validator(Validators(None, "rubbish"), DATE) is None
    assert strong_validator(Validators('W/"v1"', OLD), DATE) is None, "never a date where there is an entity tag"
    assert strong_validator(Validators('"v1"', OLD), None) == '"v1"'


def answer(
    status: int,
    validators: Validators,
    *,
    span: ContentRange | None = None,
    length: int | None = None,
    media_type: str = "application/pdf",
    encoding: str | None = None,
) -> Head:
    headers = {"content-encoding": encoding} if encoding else {}
    return Head(status, URL, headers, validators, length, span, media_type)


def part_answers(same: Validators, other: Validators) -> dict[str, Head]:
    right = ContentRange(HAVE, TOTAL - 1, TOTAL)
    rest = TOTAL - HAVE
    return {
        "206 right": answer(206, same, span=right, length=rest),
        "206 wrong start": answer(206, same, span=ContentRange(HAVE - 1, TOTAL - 1, TOTAL), length=rest + 1),
        "206 short": answer(206, same, span=ContentRange(HAVE, 699, TOTAL), length=300),
        "206 other total": answer(206, same, span=ContentRange(HAVE, TOTAL - 1, TOTAL + 10), length=rest),
        "206 star total": answer(206, same, span=ContentRange(HAVE, TOTAL - 1, None), length=rest),
        "206 other validator": answer(206, other, span=right, length=rest),
        "206 no validator": answer(206, Validators(), span=right, length=rest),
        "206 no range": answer(206, same, span=None, length=rest),
        "206 wrong length": answer(206, same, span=right, length=rest + 5),
        "206 chunked": answer(206, same, span=right, length=None),
        "206 encoded": answer(206, same, span=right, length=rest, encoding="gzip"),
        "206 multipart": answer(206, same, span=None, length=rest + 80, media_type="multipart/byteranges"),
        "200 same": answer(200, same, length=TOTAL),
        "200 same, chunked": answer(200, same, length=None),
        "200 new": answer(200, other, length=TOTAL + 1),
        "200 same validator, other length": answer(200, same, length=TOTAL + 1),
        "200 encoded": answer(200, same, length=500, encoding="gzip"),
        "416 equal": answer(416, same, span=ContentRange(None, None, HAVE)),
        "416 equal, unproven": answer(416, Validators(), span=ContentRange(None, None, HAVE)),
        "416 other": answer(416, same, span=ContentRange(None, None, 300)),
        "416 bare": answer(416, same),
    }


# The cells where If-Range carried a strong validator.
VALIDATED: dict[str, Decision] = {
    "206 right": Continue(HAVE, TOTAL),
    "206 wrong start": Restart("wrong_start", again=True),
    "206 short": Continue(HAVE, 700),
    "206 other total": Restart("total_mismatch", again=True),
    "206 star total": Restart("total_unknown", again=True),
    "206 other validator": Restart("validators_mismatch", again=True),
    "206 no validator": Restart("validators_missing", again=True),
    "206 no range": Restart("bad_content_range", again=True),
    "206 wrong length": Restart("length_mismatch", again=True),
    "206 chunked": Continue(HAVE, TOTAL),
    "206 encoded": Restart("encoded", again=True),
    "206 multipart": Restart("multipart", again=True),
    "200 same": ComparePrefix(0, HAVE, "no_accept_ranges"),
    "200 same, chunked": ComparePrefix(0, HAVE, "no_accept_ranges"),
    "200 new": Restart("validators_mismatch", again=False),
    "200 same validator, other length": Restart("total_mismatch", again=True),  # it may be a part, sent as 200
    "200 encoded": Restart("encoded", again=True),
    "416 equal": Finished("range_complete"),
    "416 equal, unproven": Restart("unproven", again=True),
    "416 other": Restart("total_mismatch", again=True),
    "416 bare": Restart("unsatisfiable", again=True),
}


@pytest.mark.parametrize("cell", VALIDATED)
@pytest.mark.parametrize("kept", ["strong", "date"])
def test_validated(kept: str, cell: str) -> None:
    part = Part(KEPT[kept], total=None if cell.startswith("416 equal") else TOTAL)
    asked = plan(part, URL, answered=DATE)
    assert isinstance(asked, FromOffset)
    assert decide(part, asked, part_answers(KEPT[kept], CHANGED[kept])[cell]) == VALIDATED[cell]


# The cells where nothing strong is known and an overlap of 100 bytes was asked for: the same answers, from byte 300.
UNVALIDATED: dict[str, Decision] = {
    "206 right": ComparePrefix(300, HAVE, "unvalidated"),
    "206 wrong start": Restart("wrong_start", again=True),
    "206 short": ComparePrefix(300, HAVE, "unvalidated"),
    "206 other total": Restart("total_mismatch", again=True),
    "206 no range": Restart("bad_content_range", again=True),
    "206 encoded": Restart("encoded", again=True),
    "206 multipart": Restart("multipart", again=True),
    "206 chunked": ComparePrefix(300, HAVE, "unvalidated"),
    "200 same": Restart("no_accept_ranges", again=False),
    "200 new": Restart("no_accept_ranges", again=False),
    "416 equal": Restart("total_mismatch", again=True),
    "416 bare": Restart("unsatisfiable", again=True),
}


@pytest.mark.parametrize("cell", UNVALIDATED)
@pytest.mark.parametrize("kept", ["weak", "none", "young_date"])
def test_unvalidated(kept: str, cell: str) -> None:
    part = Part(KEPT[kept])
    asked = plan(part, URL, answered=DATE, overlap_bytes=100, without_validators=True)
    assert isinstance(asked, FromOffset) and asked.start == 300
    head = part_answers(KEPT[kept], CHANGED[kept])[cell]
    span = head.content_range
    if span is not None and span.first is not None:
        head.content_range = ContentRange(span.first - 100, span.last, span.total)
        head.length = None if head.length is None else head.length + 100
    expected = UNVALIDATED[cell]
    if cell == "200 new" and kept == "none":  # only its length differs: it may be a part, sent as 200
        expected = Restart("no_accept_ranges", again=True)
    assert decide(part, asked, head) == expected


@pytest.mark.parametrize("kept", ["weak", "young_date"])
def test_an_overlap_whose_weak_validator_changed_starts_again(kept: str) -> None:
    part = Part(KEPT[kept])
    asked = FromOffset(300, None, "unvalidated")
    head = answer(206, CHANGED[kept], span=ContentRange(300, TOTAL - 1, TOTAL), length=700)
    assert decide(part, asked, head) == Restart("validators_mismatch", again=True)


@pytest.mark.parametrize("validators", [KEPT["strong"], Validators(), Validators('"other"')])
@pytest.mark.parametrize("length", [TOTAL - HAVE, TOTAL - HAVE - 1, None])
def test_a_200_that_may_be_the_rest_is_never_the_whole(validators: Validators, length: int | None) -> None:
    """As long as the rest, or without anything that shows a new version."""
    decision = decide(Part(KEPT["strong"]), FromOffset(HAVE, '"v1"', "ok"), answer(200, validators, length=length))
    shows_a_new_version = validators.etag == '"other"' and length != TOTAL - HAVE
    assert (
        decision == Restart("validators_mismatch", again=False) if shows_a_new_version else _compares_or_asks(decision)
    )


def _compares_or_asks(decision: object) -> bool:
    return isinstance(decision, ComparePrefix) or (isinstance(decision, Restart) and decision.again)


def test_an_expected_digest_proves_a_416() -> None:
    asked = FromOffset(HAVE, '"v1"', "ok")
    head = answer(416, Validators(), span=ContentRange(None, None, HAVE))
    assert decide(Part(total=None), asked, head, digest_known=True) == Finished("range_complete")
    assert decide(Part(), asked, head, digest_known=True) == Restart("total_mismatch", again=True)


def test_a_416_never_shortens_an_object_whose_length_was_declared() -> None:
    head = answer(416, V1, span=ContentRange(None, None, HAVE))
    assert decide(Part(), FromOffset(HAVE, '"v1"', "ok"), head) == Restart("total_mismatch", again=True)


ELSEWHERE = "http://b.example/x"
DIGEST = {"repr-digest": "sha-256=:" + "A" * 43 + "=:"}
OTHER_DIGEST = {"repr-digest": "sha-256=:" + "B" * 42 + "A=:"}


@pytest.mark.parametrize("cell", [name for name, decision in VALIDATED.items() if not isinstance(decision, Restart)])
@pytest.mark.parametrize("kept", ["strong", "date"])
@pytest.mark.parametrize("other", ["answered elsewhere", "first answered elsewhere", "first answer unknown", "digest"])
def test_an_answer_of_another_server_or_with_another_digest_is_never_joined(kept: str, cell: str, other: str) -> None:
    part = Part(
        KEPT[kept],
        total=None if cell.startswith("416 equal") else TOTAL,
        final_url={"first answered elsewhere": ELSEWHERE, "first answer unknown": None}.get(other, URL),
        headers=DIGEST if other == "digest" else {},
    )
    asked = plan(part, URL, answered=DATE)
    assert isinstance(asked, FromOffset)
    head = part_answers(KEPT[kept], CHANGED[kept])[cell]
    if other == "answered elsewhere":
        head.url = ELSEWHERE
    head.headers |= OTHER_DIGEST
    decision = decide(part, asked, head)
    assert isinstance(decision, Restart)
    assert decision.again is (head.status != 200), "a 200 is the whole object already"
    why = "digests_mismatch" if other == "digest" else "other_final_url"
    assert decision.reason == ("unproven" if head.status == 416 else why)


_ETAGS = st.sampled_from([None, '"v1"', '"v2"', 'W/"v1"'])
_NUMBERS = st.integers(0, 1200)


@given(
    _ETAGS,
    st.sampled_from([None, OLD, NEW]),
    st.sampled_from([200, 206, 416]),
    st.one_of(st.none(), st.tuples(_NUMBERS, _NUMBERS, st.one_of(st.none(), _NUMBERS))),
    st.one_of(st.none(), _NUMBERS),
    st.sampled_from([None, "gzip"]),
    st.sampled_from([URL, ELSEWHERE]),
)
def test_bytes_are_joined_only_under_one_strong_validator(
    etag: str | None,
    date: str | None,
    status: int,
    span: tuple[int, int, int | None] | None,
    length: int | None,
    encoding: str | None,
    final_url: str,
) -> None:
    part, asked = Part(), FromOffset(HAVE, '"v1"', "ok")  # its total is known: a 416 can prove nothing
    where = ContentRange(*span) if span and status == 206 else ContentRange(None, None, span[2]) if span else None
    head = answer(status, Validators(etag, date), span=where, length=length, encoding=encoding)
    head.url = final_url
    decision = decide(part, asked, head)
    assert not isinstance(decision, Finished)
    if isinstance(decision, Continue | ComparePrefix):
        assert etag == '"v1"' and encoding is None and final_url == URL
    if isinstance(decision, Continue):
        assert where is not None and status == 206
        assert (where.first, where.total, decision.offset) == (HAVE, TOTAL, HAVE)
        assert length in (None, where.length)
