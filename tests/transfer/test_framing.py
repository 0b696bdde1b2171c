"""Where a body ends and which head is the answer's: what libcurl accepts is not always what the server said."""

from __future__ import annotations

from pathlib import Path

import pytest

from longshore.errors import Reasoned
from longshore.transfer import FetchRequest, Memory
from tests.support.frames import END_HEADERS, HEADERS, Script, body, fields, frame, goaway, head, reset
from tests.support.origin import Origin, raw
from tests.transfer.test_http2 import BODY, half, serve
from tests.transfer.wire import fails, fetch, reason, within

NO_ERROR = 0
OK = b"HTTP/1.1 200 OK\r\n"
END = b"Content-Length: 2\r\n\r\nhi"


def _http2(tmp_path: Path, script: Script) -> tuple[str, bool | None, bytes]:
    """Fetch over HTTP/2: the outcome, whether its end was known, and the bytes."""
    server, settings = serve(tmp_path, script)
    sink = Memory()
    with server:
        try:
            got = within(lambda t: t.fetch(FetchRequest(server.url), sink), settings=settings)
        except Reasoned as error:
            return error.reason, None, sink.body
        finally:
            assert server.requests <= 2
    return "ok", got.head.delimited, sink.body


@pytest.mark.parametrize(
    "script",
    [
        lambda s: half(s, declared=False) + reset(s, NO_ERROR),
        lambda s: half(s, declared=False) + goaway(s) + reset(s, NO_ERROR),
        lambda s: head(s, None) + reset(s, NO_ERROR),
        lambda s: half(s, declared=False) + body(s, b"") + reset(s, NO_ERROR),
    ],
    ids=["reset", "goaway and reset", "reset before the body", "ended and reset"],
)
def test_a_length_less_http2_body_is_never_taken_for_verified(tmp_path: Path, script: Script) -> None:
    """libcurl reports RST_STREAM(NO_ERROR) as the end; without a length nobody can tell, and that is said."""
    word, delimited, _ = _http2(tmp_path, script)
    assert word != "ok" or delimited is False


@pytest.mark.parametrize("code", [NO_ERROR, 1, 2, 8])
def test_a_declared_http2_length_is_kept(tmp_path: Path, code: int) -> None:
    assert _http2(tmp_path, lambda s: half(s) + reset(s, code))[0] == "truncated"


@pytest.mark.parametrize("declared", [1, 39_999])
def test_an_http2_body_longer_than_declared_fails(tmp_path: Path, declared: int) -> None:
    assert _http2(tmp_path, lambda s: head(s, declared) + body(s, BODY))[0] in ("truncated", "protocol_error")


def test_a_declared_http2_length_is_verified(tmp_path: Path) -> None:
    assert _http2(tmp_path, lambda s: head(s, len(BODY)) + body(s, BODY)) == ("ok", True, BODY)
    assert _http2(tmp_path, lambda s: head(s, len(BODY)) + body(s, BODY) + reset(s, NO_ERROR)) == ("ok", True, BODY)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"HTTP/1.1 404 No\r\nHTTP/1.1 200 OK: x\r\n" + END, "protocol_error"),
        (b"HTTP/1.1 404 No\r\nX: y\nHTTP/1.1 200 OK\r\n" + END, "protocol_error"),
        (OK + b"X: a\nContent-Encoding: gzip\r\n" + END, "content_encoding"),
        (OK + b"X: a\r\n\tb\r\nContent-Encoding:\r\n gzip\r\n" + END, "content_encoding"),
        (OK + b"Content-Encoding : gzip\r\n" + END, "protocol_error"),
        (OK + b"Content-Encoding\xa0: gzip\r\n" + END, "protocol_error"),
        (OK + b"X: a\rContent-Encoding: gzip\r\n" + END, "protocol_error"),
        (OK + b"Content-Encoding: identity\r\ncontent-encoding: x-gzip\r\n" + END, "content_encoding"),
        (OK + b"X: \0\r\n" + END, "protocol_error"),
        (OK + b"Transfer-Encoding: identity\r\n" + END, "protocol_error"),
        (OK + b"Transfer-Encoding : chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "protocol_error"),
        (OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "protocol_error"),
        (OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!", "protocol_error"),
        (b"HTTP/1.1 2000 OK\r\n" + END, "protocol_error"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "protocol_error"),
    ],
)
def test_heads_that_can_be_read_in_two_ways(origin: Origin, data: bytes, word: str) -> None:
    got = reason(origin.add("/a", raw(data)))
    assert got == word or (word == "protocol_error" and got == "content_encoding")
    assert origin.count("/a") <= 2


def test_a_transfer_coding_that_was_not_asked_for_never_completes(origin: Origin) -> None:
    for coding in (b"gzip, chunked", b"xchunked", b"chunked, identity"):
        data = OK + b"Transfer-Encoding: " + coding + b"\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
        assert reason(origin.add("/a", raw(data))) in ("protocol_error", "content_encoding")


@pytest.mark.parametrize(
    ("data", "delimited"),
    [
        (OK + b"Transfer-Encoding: identity\r\n\r\nhi", False),
        (OK + b"\r\nhi", False),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", False),
        (OK + b"Transfer-Encoding:\r\n chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", True),
        (b"HTTP/1.1 100 C\r\nETag: x\r\n\r\nHTTP/1.1 103 E\r\n\r\n" + OK + END, True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nHTTP/1.1 404 a: b\r\nETag: x\r\n\r\n", True),
    ],
)
def test_heads_that_are_read_one_way(origin: Origin, data: bytes, delimited: bool) -> None:
    got, came = fetch(origin.add("/a", raw(data)))
    assert (got.head.status, came, got.head.delimited) == (200, b"hi", delimited)


def test_a_trailer_is_not_a_head(origin: Origin) -> None:
    data = b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHTTP/1.1 200 OK: x\r\nETag: x\r\n\r\n"
    assert reason(origin.add("/a", raw(data))) == "http_404"


@pytest.mark.parametrize("code", [201, 202, 203, 204, 205, 207, 226, 299])
def test_no_other_2xx_is_the_object(origin: Origin, code: int) -> None:
    body = b"" if code in (204, 205) else b"hi"
    data = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (code, len(body), body)
    assert reason(origin.add("/a", raw(data))) == f"http_{code}"


def _head(stream: int, *pairs: tuple[str, str]) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, b"\x88" + fields(list(pairs)))


@pytest.mark.parametrize(
    "script",
    [
        lambda s: _head(s, ("content-length", "5"), ("content-length", "3")) + body(s, b"hello"),
        lambda s: _head(s, ("transfer-encoding", "chunked")) + body(s, b"hello"),
        lambda s: _head(s, ("X-Up", "1"), ("content-length", "5")) + body(s, b"hello"),
        lambda s: head(s, 3) + body(s, b"hello"),
    ],
    ids=["two lengths", "transfer-encoding", "upper case", "too long"],
)
def test_http2_that_breaks_the_protocol_is_told_so(tmp_path: Path, script: Script) -> None:
    assert _http2(tmp_path, script)[0] == "protocol_error"


@pytest.mark.parametrize(
    "chunks", [b"zz\r\nhello\r\n", b"-5\r\nhello\r\n", b"f" * 20 + b"\r\nhello", b"5\r\nhelloX\r\n0\r\n\r\n"]
)
def test_chunks_that_break_the_protocol_are_told_so(origin: Origin, chunks: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" + chunks
    error = fails(origin.add("/a", raw(answer)))
    assert error.reason == "protocol_error" and error.disowned


@pytest.mark.parametrize("code", [1, 2, 8])
def test_a_reset_after_the_last_byte_disowns_the_body(tmp_path: Path, code: int) -> None:
    server, settings = serve(tmp_path, lambda s: head(s, len(BODY)) + body(s, BODY, end=False) + reset(s, code))
    with server:
        error = fails(server.url, settings=settings)
    assert error.reason == "truncated" and error.disowned
