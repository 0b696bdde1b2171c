"""When a body is divided, and what a piece must be."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.domain.model import Validators
from longshore.domain.transfer.ranges import ContentRange
from longshore.domain.transfer.response_head import Head
from longshore.domain.transfer.segments import (
    LARGEST_PIECE,
    SMALLEST_PIECE,
    WINDOW_BYTES,
    Step,
    identity,
    next_step,
    piece_fault,
    split,
)

MIB = 1 << 20
_OF_THE_RANGE = ("no_accept_ranges", "encoded", "bad_content_range", "length_mismatch")


def head(
    status: int = 200,
    etag: str | None = '"v1"',
    *,
    length: int | None = 100,
    span: ContentRange | None = None,
    ranges: str | None = "bytes",
    encoding: str | None = None,
) -> Head:
    fields = {"accept-ranges": ranges, "content-encoding": encoding}
    return Head(status, "u", {k: v for k, v in fields.items() if v}, Validators(etag), length, span)


def test_whose_pieces_can_be_trusted() -> None:
    assert identity(head(), 0) == ('"v1"', 100)
    assert identity(head(206, length=60, span=ContentRange(40, 99, 100)), 40) == ('"v1"', 100)
    for other in (
        head(etag='W/"v1"'),
        head(etag=None),
        head(length=None),
        head(ranges=None),
        head(ranges="none"),
        head(encoding="gzip"),
        head(206, length=50, span=ContentRange(40, 89, 100)),
        head(206, length=60, span=ContentRange(40, 99, None)),
        head(206, length=60, span=ContentRange(41, 99, 100)),
        head(206),
    ):
        assert identity(other, 40 if other.status == 206 else 0) is None
    assert identity(head(), 40) is None, "a 200 to a range request: the server ignores ranges"


@pytest.mark.parametrize(
    ("left", "rate", "count", "ours"),
    [
        (1024 * MIB, MIB, 1, False),
        (1024 * MIB, MIB, 8, True),
        (1024 * MIB, 500 * MIB, 8, False),
        (MIB // 2, MIB // 10, 8, False),
        (MIB, MIB, 8, False),
    ],
)
def test_one_stream_is_enough(left: int, rate: float, count: int, ours: bool) -> None:
    assert split(left_bytes=left, rate_bytes_s=rate, count=count, ours=ours) is None


@given(st.integers(4 * SMALLEST_PIECE, 1 << 42), st.floats(0, 100 * MIB), st.integers(2, 64))
def test_a_division_is_bounded(left: int, rate: float, count: int) -> None:
    found = split(left_bytes=left, rate_bytes_s=rate, count=count, ours=False)
    if found is not None:
        assert 2 <= found.count <= count and SMALLEST_PIECE <= found.piece <= LARGEST_PIECE
        assert found.piece < found.window <= WINDOW_BYTES


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (head(206, length=20, span=ContentRange(40, 59, 100)), None),
        (head(206, length=None, span=ContentRange(40, 59, 100)), None),
        (head(200), "no_accept_ranges"),
        (head(416, span=ContentRange(None, None, 100)), "no_accept_ranges"),
        (head(206, length=20, span=None), "bad_content_range"),
        (head(206, length=20, span=ContentRange(41, 60, 100)), "bad_content_range"),
        (head(206, length=19, span=ContentRange(40, 58, 100)), "bad_content_range"),
        (head(206, length=20, span=ContentRange(40, 59, 101)), "bad_content_range"),
        (head(206, length=20, span=ContentRange(40, 59, None)), "bad_content_range"),
        (head(206, length=25, span=ContentRange(40, 59, 100)), "length_mismatch"),
        (head(206, '"v2"', length=20, span=ContentRange(40, 59, 100)), "validators_mismatch"),
        (head(206, 'W/"v1"', length=20, span=ContentRange(40, 59, 100)), "validators_mismatch"),
        (head(206, None, length=20, span=ContentRange(40, 59, 100)), "validators_missing"),
        (head(206, length=20, span=ContentRange(40, 59, 100), encoding="gzip"), "encoded"),
    ],
)
def test_a_piece_is_checked_like_a_resume(answer: Head, fault: str | None) -> None:
    assert piece_fault(head(), answer, start=40, end=60) == fault
    answer.url = "elsewhere"
    assert piece_fault(head(), answer, start=40, end=60) == (fault if fault in _OF_THE_RANGE else "other_final_url")


def test_something_always_moves() -> None:
    """Whatever the situation: a stream works, one is started, or the sink is the one that has to go on."""
    for moving, parked, connections, pieces, held, short in product(
        range(4), (False, True), range(1, 5), (False, True), (False, True), (False, True)
    ):
        step = next_step(moving=moving, parked=parked, connections=connections, pieces=pieces, held=held, short=short)
        if step is Step.WAIT:
            assert moving or (held and not parked), "nobody works and nobody will"
        if step is Step.FETCH:
            assert pieces and moving + parked < connections
            assert not short, "a piece would wait for a place that the parked stream may hold"
        if step is Step.ONE_STREAM:
            assert not moving, "streams that work are not given up"
        if not moving and not parked and pieces and not short:
            assert step is Step.FETCH
        if short and parked and not moving:
            assert step is Step.ONE_STREAM, "the parked stream holds a place: it goes on"
