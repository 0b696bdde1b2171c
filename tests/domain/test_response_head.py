"""Heads of answers: what is ambiguous is refused; Retry-After in both forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.domain.transfer.response_head import Head, parse_head, retry_after_s, valid_etag
from longshore.errors import Reasoned

NOW = 1_736_244_000.0  # Tue, 07 Jan 2025 10:00:00 GMT


def head(*fields: str, status: str = "HTTP/1.1 200 OK") -> Head:
    lines = [status, *fields, ""]
    return parse_head([f"{line}\r\n".encode("latin-1") for line in lines], "http://a/", ("http://b/",))


def test_an_ordinary_head() -> None:
    got = head(
        'ETag: "x"', "Last-Modified: Mon", "Content-Length: 5", "Content-Type: Text/HTML; charset=x", "X: 1", "x: 2"
    )
    assert (got.status, got.length, got.media_type, got.headers["x"]) == (200, 5, "text/html", "1, 2")
    assert (got.validators.etag, got.validators.last_modified) == ('"x"', "Mon")
    assert got.hops == ("http://b/",) and got.delimited and got.encoding is None and got.total == 5


def test_informational_heads_and_trailing_rows_are_not_the_answer() -> None:
    lines = [
        b"HTTP/1.1 103 Early\r\n",
        b'ETag: "no"\r\n',
        b"\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"Content-Length: 1\r\n",
        b"\r\n",
    ]
    got = parse_head(lines, "u")
    assert got.status == 200 and got.validators.etag is None and got.length == 1


def test_trailers_are_not_headers_and_bare_line_feeds_are_read() -> None:
    got = parse_head([b"HTTP/1.1 200 OK\r\n", b"A: 1\r\n", b"\r\n", b'ETag: "no"\r\n', b"\r\n"], "u")
    assert got.headers == {"a": "1"} and got.validators.etag is None
    assert parse_head([b"HTTP/1.1 200 OK\n", b"A: 1\n", b"\n"], "u").headers == {"a": "1"}


def test_a_head_that_was_cut_is_none() -> None:
    for lines in ([b"HTTP/1.1 200 OK\r\n"], [b"HTTP/1.1 200 OK\r\n", b"Content-Le"], []):
        with pytest.raises(Reasoned):
            parse_head(lines, "u")


@pytest.mark.parametrize(
    "fields",
    [
        ("Content-Length: 12", "Content-Length: 13"),
        ("Content-Length: 12, 13",),
        ("Content-Length: -1",),
        ("Content-Length: 18446744073709551616",),
        ("Content-Length: twelve",),
        ("Content-Length: 12", "Transfer-Encoding: chunked"),
    ],
)
def test_ambiguous_lengths_are_a_protocol_error(fields: tuple[str, ...]) -> None:
    with pytest.raises(Reasoned) as caught:
        head(*fields)
    assert caught.value.reason == "protocol_error"


def test_equal_lengths_are_one() -> None:
    assert head("Content-Length: 12", "Content-Length: 12").length == 12


@pytest.mark.parametrize("status", ["HTTP/1.1", "HTTP/1.1 abc", "HTTP/1.1 ²00 x"])
def test_a_status_line_that_cannot_be_read(status: str) -> None:
    with pytest.raises(Reasoned):
        head(status=status)


@pytest.mark.parametrize(
    ("status", "fields", "delimited"),
    [
        ("HTTP/1.1 200 OK", (), False),
        ("HTTP/1.1 200 OK", ("Content-Length: 0",), True),
        ("HTTP/1.1 200 OK", ("Transfer-Encoding: chunked",), True),
        ("HTTP/1.1 200 OK", ("Transfer-Encoding:\tChunked ",), True),
        ("HTTP/1.1 200 OK", ("Transfer-Encoding: identity",), False),
        ("HTTP/1.0 200 OK", ("Transfer-Encoding: chunked",), False),
        ("HTTP/1.0 200 OK", ("Content-Length: 3",), True),
        ("HTTP/2 200", (), False),
        ("HTTP/2 200 ", ("Content-Length: 3",), True),
        ("HTTP/3 200", (), False),
        ("HTTP/2 206", ("Content-Range: bytes 0-4/5",), True),
        ("HTTP/1.1 206 P", ("Content-Range: bytes 0-4/*",), True),
        ("HTTP/1.1 206 P", ("Content-Range: garbage",), False),
        ("HTTP/1.1 200 OK", ("Content-Range: bytes 0-4/5",), False),
    ],
)
def test_delimited(status: str, fields: tuple[str, ...], delimited: bool) -> None:
    assert head(*fields, status=status).delimited is delimited


@pytest.mark.parametrize(
    "field",
    [
        "HTTP/1.1 200 OK: x",
        "HTTP/1.1 200 OK",
        "Content-Encoding : gzip",
        "Content-Encoding\t: gzip",
        " Content-Encoding: gzip",
        "Content Encoding: gzip",
        "Content-Encoding\xa0: gzip",
        "\xe9tag: x",
        ": x",
        "no colon",
        "X: a\rContent-Encoding: gzip",
        "X: a\nContent-Encoding gzip",
        "X: a\0b",
        "X\0: a",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: \x0bchunked",
        "Transfer-Encoding:",
    ],
)
def test_a_line_that_can_be_read_in_two_ways_is_a_protocol_error(field: str) -> None:
    for status in ("HTTP/1.1 404 No", "HTTP/1.1 200 OK"):
        with pytest.raises(Reasoned) as caught:
            head("A: 1", field, "Content-Type: text/plain", status=status)
        assert caught.value.reason == "protocol_error"


def test_two_locations_are_a_protocol_error() -> None:
    with pytest.raises(Reasoned):
        head("Location: /a", "location: /b", status="HTTP/1.1 302 Found")


def _lines(*rows: str) -> list[bytes]:
    return [f"{row}\r\n".encode("latin-1") for row in rows]


@pytest.mark.parametrize(
    ("rows", "tunnel", "status"),
    [
        (("HTTP/1.1 404 No", "A: 1", "", "HTTP/1.1 200 x: y", "B: 2"), False, 404),
        (("HTTP/1.1 404 No", "A: 1", "", "HTTP/1.1 200 x: y", "B: 2", ""), True, 404),
        (("HTTP/1.1 100 Continue", "", "HTTP/1.1 103 Early", "X: y", "", "HTTP/1.1 200 OK", ""), False, 200),
        (("HTTP/1.1 101 Switching", "", "HTTP/1.1 200 OK", ""), False, 101),
        (("HTTP/1.1 200 Connection established", "", "HTTP/1.1 404 No", ""), True, 404),
        (("HTTP/1.1 200 Connection established", "", "HTTP/1.1 103 Early", "", "HTTP/2 206 ", ""), True, 206),
        (("HTTP/1.1 200 OK", "", "HTTP/1.1 404 No", ""), False, 200),
        (("HTTP/1.1 200 OK", "", "X: trailer"), True, 200),
    ],
)
def test_which_head_is_the_answers(rows: tuple[str, ...], tunnel: bool, status: int) -> None:
    assert parse_head(_lines(*rows), "u", tunnel=tunnel).status == status


@pytest.mark.parametrize(
    "rows",
    [
        ("HTTP/1.1 100 Continue", ""),
        ("HTTP/1.1 100 Continue", "", "X: y", ""),
        ("", "HTTP/1.1 200 OK", ""),
        ("HTTP/1.1 2000 OK", ""),
        ("HTTP/1.1 099 OK", ""),
        ("HTTP/1.1  200 OK", ""),
        ("XHTTP/1.1 200 OK", ""),
    ],
)
def test_heads_that_are_none(rows: tuple[str, ...]) -> None:
    with pytest.raises(Reasoned) as caught:
        parse_head(_lines(*rows), "u")
    assert caught.value.reason == "protocol_error"


def test_values_keep_their_bytes() -> None:
    got = head('ETag: "caf\xe9"', "Location: /\xc3\xa9\xa0", "X: \x85 \t", "Last-Modified: gestern, f\xfcnf Uhr")
    assert got.headers["location"] == "/\xc3\xa9\xa0" and got.headers["x"] == "\x85"
    assert got.validators.etag == '"caf\xe9"', "obs-text is legal in an entity tag"
    assert got.validators.last_modified is None, "a date that cannot be sent is not a validator"


def test_two_entity_tags_are_none() -> None:
    assert head('ETag: "a"', 'ETag: "b"').validators.etag is None


@pytest.mark.parametrize(
    ("tag", "valid"),
    [
        ('"x"', True),
        ('W/"x"', True),
        ('""', True),
        ("x", False),
        ('"a"b"', False),
        ('w/"x"', False),
        ('"a\x01"', False),
        ('"', False),
    ],
)
def test_entity_tags(tag: str, valid: bool) -> None:
    assert valid_etag(tag) is valid


def test_encoding() -> None:
    assert head("Content-Encoding: gzip").encoding == "gzip"
    assert head("Content-Encoding: identity").encoding is None
    assert head("Content-Encoding: gzip", "Content-Encoding: gzip").encoding == "gzip, gzip"
    assert head("Content-Encoding: identity", "Content-Encoding: x-gzip").encoding == "identity, x-gzip"
    assert head("Content-Encoding: identity, , IDENTITY").encoding is None


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("3", None, 3.0),
        ("0", None, 0.0),
        ("1000000000", None, 86_400.0),
        ("9" * 400, None, 86_400.0),
        ("Tue, 07 Jan 2025 10:00:30 GMT", None, 30.0),
        ("Tue, 07 Jan 2025 09:00:00 GMT", None, 0.0),
        ("Tue, 07 Jan 2025 12:00:30 GMT", "Tue, 07 Jan 2025 12:00:00 GMT", 30.0),
        ("Tue, 07 Jan 2125 10:00:30 GMT", None, 86_400.0),
        ("-5", None, None),
        ("soon", None, None),
        ("1.5", None, None),
        ("٣", None, None),
        (None, None, None),
    ],
)
def test_retry_after(value: str | None, date: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, now=NOW, date=date) == seconds


@given(st.text(max_size=60))
def test_retry_after_never_raises(value: str) -> None:
    assert 0 <= (retry_after_s(value, now=NOW) or 0) <= 86_400


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_garbage_is_a_head_or_a_reason(rows: list[bytes]) -> None:
    try:
        parse_head([b"HTTP/1.1 200 OK\r\n", *(row + b"\r\n" for row in rows), b"\r\n"], "u")
    except Reasoned as error:
        assert error.reason == "protocol_error"
