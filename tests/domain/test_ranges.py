"""Content-Range and Content-Length, read strictly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.domain.transfer.ranges import ContentRange, parse_content_range, parse_length, range_header


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("bytes 0-9/10", ContentRange(0, 9, 10)),
        ("bytes 5-9/10", ContentRange(5, 9, 10)),
        ("bytes 5-9/*", ContentRange(5, 9, None)),
        ("BYTES 5-9/10", ContentRange(5, 9, 10)),
        ("bytes */10", ContentRange(None, None, 10)),
        (" bytes 0-0/1 ", ContentRange(0, 0, 1)),
        (None, None),
        ("", None),
        ("bytes", None),
        ("bytes ?", None),
        ("bytes 9-5/10", None),
        ("bytes 0-10/10", None),
        ("bytes 0-9/5", None),
        ("bytes */*", None),
        ("bytes -5-9/10", None),
        ("bytes 0x0-9/10", None),
        ("bytes 0-9/10, bytes 0-9/10", None),
        ("items 0-9/10", None),
        ("bytes=0-9/10", None),
        ("bytes 0-9", None),
        ("bytes ٠-٩/١٠", None),
        ("bytes 0-99999999999999999999/999999999999999999999", None),
        ("bytes 0-9/9223372036854775808", None),
    ],
)
def test_content_range(value: str | None, result: ContentRange | None) -> None:
    assert parse_content_range(value) == result


def test_whole_and_length() -> None:
    assert ContentRange(0, 9, 10).whole and not ContentRange(0, 8, 10).whole and not ContentRange(1, 9, 10).whole
    assert not ContentRange(0, 9, None).whole
    assert ContentRange(5, 9, 10).length == 5 and ContentRange(None, None, 10).length is None


@given(st.integers(0, 2**62), st.integers(0, 2**20), st.integers(0, 2**20))
def test_what_is_written_is_read(first: int, length: int, rest: int) -> None:
    last = first + length
    assert parse_content_range(f"bytes {first}-{last}/{last + 1 + rest}") == ContentRange(first, last, last + 1 + rest)


@given(st.text(max_size=40))
def test_garbage_never_raises(value: str) -> None:
    parse_content_range(value)
    parse_content_range("bytes " + value)


@pytest.mark.parametrize(("value", "length"), [("0", 0), ("12", 12), ("12, 12", 12), ("12,12,12", 12)])
def test_length(value: str, length: int) -> None:
    assert parse_length(value) == length


@pytest.mark.parametrize(
    "value",
    ["", "12, 13", "-1", "+1", "1.0", "1e3", "0x10", "abc", "18446744073709551616", "9223372036854775808", "12,", "١٢"],
)
def test_no_length(value: str) -> None:
    with pytest.raises(ValueError, match="length"):
        parse_length(value)


def test_range_header() -> None:
    assert range_header(5) == "bytes=5-" and range_header(0, 9) == "bytes=0-9"
