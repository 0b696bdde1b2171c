"""Servers that lie (torture D 34–49, 54, 58): every lie has its reason, and no lie becomes a body."""

from __future__ import annotations

import gzip
import resource

import pytest

from longshore.transfer import Discard, FetchRequest, Memory, Transfer
from tests.support.origin import (
    Behaviour,
    Origin,
    Thing,
    answer,
    bad_range,
    chunked,
    close_delimited,
    cut,
    encoded,
    endless,
    header_bomb,
    on_head,
    overlong,
    partial_to_plain,
    raw,
    stamped,
    status,
)
from tests.support.settings import tuned
from tests.transfer.wire import fails, fetch, reason, within

THING = Thing(stamped(1, 20_000))
SMALL = tuned(max_bytes=1 << 20)
OK = b"HTTP/1.1 200 OK\r\n"


# --- 34, 35: lengths


@pytest.mark.parametrize("how", ["hangup", "reset"])
@pytest.mark.parametrize("after", [0, 1, 10_000, 19_999])
def test_a_body_that_ends_early(origin: Origin, after: int, how: str) -> None:
    word = reason(origin.add("/a", cut(THING, after, how)))
    assert word in ({"truncated"} if how == "hangup" else {"truncated", "connect"}), "a reset may take its bytes along"


def test_a_body_that_runs_over_ends_at_its_declared_length(origin: Origin) -> None:
    """What follows the declared end is no part of the body, and never of the next answer."""
    late = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    url = origin.add("/a", overlong(THING, late), Thing(b"honest"))

    async def twice(transfer: Transfer) -> list[bytes]:
        bodies = []
        for _ in range(2):
            sink = Memory()
            await transfer.fetch(FetchRequest(url), sink)
            bodies.append(sink.body)
        return bodies

    assert within(twice) == [THING.body, b"honest"]


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: 12\r\nContent-Length: 13\r\n",
        b"Content-Length: 12, 13\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 18446744073709551616\r\n",
        b"Content-Length: twelve\r\n",
        b"Content-Length: 0x0c\r\n",
        b"Content-Length: 12\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_lengths_that_cannot_be_believed(origin: Origin, fields: bytes) -> None:
    body = b"c\r\nhello world!\r\n0\r\n\r\n" if b"chunked" in fields else b"hello world!!"
    assert reason(origin.add("/a", raw(OK + fields + b"\r\n" + body))) in ("protocol_error", "too_large")


def test_a_huge_declared_length_is_refused_before_the_body(origin: Origin) -> None:
    url = origin.add("/a", raw(OK + b"Content-Length: 10995116277760\r\n\r\n", "hang"))
    assert reason(url, settings=SMALL) == "too_large"


def test_head_and_get_may_disagree(origin: Origin) -> None:
    head = answer(200, {"Content-Length": "5", "ETag": '"other"'})
    got, body = fetch(origin.add("/a", on_head(head, THING)))
    assert body == THING.body and got.head.validators.etag == '"v1"'


# --- 37: chunks


@pytest.mark.parametrize(
    "behaviour",
    [
        chunked(THING, end=b""),
        chunked(THING, end=b"0\r\n"),
        chunked(THING, end=b"zz\r\n\r\n"),
        chunked(THING, end=b"5\r\nab"),
        chunked(THING, end=b"-5\r\nabcde\r\n0\r\n\r\n"),
        chunked(THING, end=b"ffffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
    ],
)
def test_bad_chunks(origin: Origin, behaviour: Behaviour) -> None:
    assert reason(origin.add("/a", behaviour)) in ("truncated", "protocol_error")


def test_extensions_and_trailers_are_no_bytes(origin: Origin) -> None:
    data = (
        OK + b"Transfer-Encoding: chunked\r\n\r\n5;ext=" + b"x" * 1000 + b'\r\nhello\r\n0\r\nETag: "no"\r\nX: y\r\n\r\n'
    )
    got, body = fetch(origin.add("/a", raw(data)))
    assert body == b"hello" and got.head.validators.etag is None and "x" not in got.head.headers


# --- 38: no length at all


def test_a_body_without_a_length_is_marked(origin: Origin) -> None:
    got, body = fetch(origin.add("/a", close_delimited(THING)))
    assert body == THING.body and got.head.length is None and not got.head.delimited
    got, body = fetch(origin.add("/a", close_delimited(THING, 500)))
    assert len(body) == 500 and not got.head.delimited, "a cut cannot be told from the end: it is marked, not trusted"


# --- 41, 42: ranges


@pytest.mark.parametrize("how", ["longer", "end"])
def test_a_part_longer_than_its_range(origin: Origin, how: str) -> None:
    assert reason(FetchRequest(origin.add("/a", bad_range(THING, how)), start=100)) == "length_mismatch"


def test_several_parts_are_refused(origin: Origin) -> None:
    assert reason(FetchRequest(origin.add("/a", bad_range(THING, "multipart")), start=100)) == "bad_range"


def test_a_part_shorter_than_its_range(origin: Origin) -> None:
    url = origin.add("/a", cut(THING, 50))
    assert reason(FetchRequest(url, start=100)) == "truncated"
    fields = {"Content-Range": "bytes 100-19999/20000", "Transfer-Encoding": "chunked"}
    short = answer(206, fields, b"5\r\nhello\r\n0\r\n\r\n")
    assert reason(FetchRequest(origin.add("/b", short), start=100)) == "truncated"


def test_206_to_a_plain_get(origin: Origin) -> None:
    assert reason(origin.add("/a", partial_to_plain(THING, 5000, 5999))) == "bad_range"
    assert reason(origin.add("/a", partial_to_plain(THING, 0, 5999))) == "bad_range"
    got, body = fetch(origin.add("/a", partial_to_plain(THING, 0, len(THING.body) - 1)))
    assert body == THING.body and got.head.status == 206, "the whole object, oddly labelled"


# --- 44: odd answers


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", {"protocol_error", "connect"}),
        (b"garbage without a status line\r\n\r\n", {"protocol_error"}),
        (b"<html>HTTP/0.9 says hello</html>", {"protocol_error"}),
        (b"HTTP/1.1 abc OK\r\n\r\n", {"protocol_error"}),
        (b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n", {"protocol_error"}),
        (b"HTTP/1.1 200 OK\r\nContent-Le", {"protocol_error", "connect", "truncated"}),
        (b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n", {"protocol_error"}),
        (b"HTTP/1.1 204 No Content\r\n\r\n", {"http_204"}),
        (b"HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n", {"http_205"}),
        (b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n", {"http_999", "protocol_error"}),
        (b"HTTP/1.1 300 Choose\r\nContent-Length: 0\r\n\r\n", {"http_300"}),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000, {"header_too_large", "protocol_error", "connect"}),
    ],
)
def test_odd_answers(origin: Origin, data: bytes, words: set[str]) -> None:
    assert reason(origin.add("/a", raw(data))) in words


def test_early_hints_are_not_the_answer(origin: Origin) -> None:
    hint = b'HTTP/1.1 103 Early Hints\r\nETag: "no"\r\nContent-Length: 3\r\n\r\n'
    got, body = fetch(origin.add("/a", raw(hint + OK + b"Content-Length: 5\r\n\r\nhello")))
    assert body == b"hello" and got.head.validators.etag is None


def test_refusals_with_long_bodies_and_challenges(origin: Origin) -> None:
    long = origin.add("/a", status(404, b"x" * 300_000))
    assert reason(long) == "http_404", "a long refusal is not read to its end"
    assert reason(long, settings=tuned(max_bytes=10)) == "http_404"
    challenge = origin.add("/b", answer(403, {"Content-Length": "0", "cf-mitigated": "challenge"}))
    assert reason(challenge) == "blocked_challenge"


# --- 46, 48, 49: bombs


@pytest.mark.parametrize("declared", [None, 1 << 50])
def test_endless_bodies_stop_at_the_limit(origin: Origin, declared: int | None) -> None:
    sink = Memory()
    url = origin.add("/a", endless(declared))
    with pytest.raises(Exception, match="bytes"):
        within(lambda transfer: transfer.fetch(FetchRequest(url, max_bytes=1 << 20), sink))
    assert len(sink.body) <= 1 << 20


@pytest.mark.parametrize("chunks", [0, 1000])
def test_a_body_over_the_limit_is_refused(origin: Origin, chunks: int) -> None:
    url = origin.add("/a", chunked(THING, chunks) if chunks else THING)
    assert reason(FetchRequest(url, max_bytes=len(THING.body) - 1)) == "too_large"
    assert fetch(FetchRequest(url, max_bytes=len(THING.body)))[1] == THING.body


@pytest.mark.parametrize("label", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "x-gzip", "compress"])
def test_encodings_are_refused_and_never_decoded(origin: Origin, label: str) -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)
    assert reason(origin.add("/a", encoded(THING, label, bomb))) == "content_encoding"


def test_an_identity_label_is_fine(origin: Origin) -> None:
    assert fetch(origin.add("/a", encoded(THING, "identity", THING.body)))[1] == THING.body


def test_an_unasked_transfer_coding_is_refused(origin: Origin) -> None:
    packed = gzip.compress(b"hello")
    data = OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(packed), packed)
    assert reason(origin.add("/a", raw(data))) in ("content_encoding", "protocol_error")


@pytest.mark.parametrize("lines", [True, False])
def test_header_bombs(origin: Origin, lines: bool) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert reason(origin.add("/a", header_bomb(50_000_000, lines=lines))) == "header_too_large"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 << 10, "kilobytes of growth"


def test_headers_just_above_our_own_limit(origin: Origin) -> None:
    settings = tuned(max_header_bytes=10_000)
    url = origin.add("/a", answer(200, {"X": "a" * 10_000, "Content-Length": "0"}))
    assert reason(url, settings=settings) == "header_too_large"


def test_a_large_body_does_not_stay_in_memory(origin: Origin) -> None:
    url = origin.add("/a", endless(1 << 28))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    settings = tuned(max_bytes=1 << 30)
    got = within(lambda transfer: transfer.fetch(FetchRequest(url), Discard()), settings=settings)
    assert got.received_bytes == 1 << 28
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 << 10


# --- 54: waiting


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("7", 7, 7),
        ("Fri, 01 Jan 2100 00:00:00 GMT", 86_400, 86_400),
        ("Mon, 06 Jan 2020 10:00:00 GMT", 0, 0),
        ("1" * 12, 86_400, 86_400),
    ],
)
@pytest.mark.parametrize("code", [429, 503])
def test_retry_after(origin: Origin, code: int, value: str, least: float, most: float) -> None:
    error = fails(origin.add("/a", status(code, Retry_After=value)))
    assert error.reason == f"http_{code}"
    assert error.retry_after_s is not None and least <= error.retry_after_s <= most


@pytest.mark.parametrize("value", ["-1", "soon", "1.5", ""])
def test_retry_after_garbage(origin: Origin, value: str) -> None:
    assert fails(origin.add("/a", status(503, Retry_After=value))).retry_after_s is None


# --- 57: names are the server's words, never ours


def test_content_disposition_is_only_a_header(origin: Origin) -> None:
    got, _ = fetch(origin.add("/a", Thing(extra={"Content-Disposition": 'attachment; filename="../../x"'})))
    assert got.head.headers["content-disposition"] == 'attachment; filename="../../x"'
