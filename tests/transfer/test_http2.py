"""HTTP/2 servers that misbehave (torture D 59): streams reset, connections told to go away, windows that never open."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from longshore.domain.settings import Settings
from longshore.errors import Reasoned
from longshore.transfer import Discard, FetchRequest, Memory, Transfer
from tests.support.frames import REFUSED, FrameServer, Script, body, goaway, head, reset
from tests.support.origin import Origin, Thing, raw, stamped
from tests.support.settings import tuned
from tests.transfer.test_real_servers import _context
from tests.transfer.wire import within

BODY = stamped(1, 40_000)


def whole(stream: int) -> bytes:
    return head(stream, len(BODY)) + body(stream, BODY)


def half(stream: int, *, declared: bool = True) -> bytes:
    return head(stream, len(BODY) if declared else None) + body(stream, BODY[:20_000], end=False)


def serve(tmp_path: Path, *scripts: Script, http1: bytes | None = None) -> tuple[FrameServer, Settings]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    settings = tuned(ca_file=str(tmp_path / "ca.pem"), stall_s=20)
    return FrameServer(_context(authority, "127.0.0.1"), *scripts, http1=http1), settings


def outcome(tmp_path: Path, *scripts: Script, **limits: float) -> tuple[str, bytes]:
    server, settings = serve(tmp_path, *scripts)
    sink = Memory()
    with server:
        try:
            within(
                lambda t: t.fetch(FetchRequest(server.url, deadline_s=limits.get("deadline_s")), sink),
                settings=settings,
            )
        except Reasoned as error:
            return error.reason, sink.body
    return "ok", sink.body


def test_an_honest_one(tmp_path: Path) -> None:
    assert outcome(tmp_path, whole) == ("ok", BODY)
    assert outcome(tmp_path, lambda s: head(s, None) + body(s, BODY)) == ("ok", BODY)


def test_a_stream_that_is_reset(tmp_path: Path) -> None:
    assert outcome(tmp_path, lambda s: half(s) + reset(s))[0] == "truncated"
    assert outcome(tmp_path, lambda s: half(s, declared=False) + reset(s))[0] == "truncated"
    assert outcome(tmp_path, reset)[0] in ("protocol_error", "connect")


@pytest.mark.parametrize("sent", [0, 20_000, 39_999])
def test_a_body_shorter_than_declared(tmp_path: Path, sent: int) -> None:
    word, _ = outcome(tmp_path, lambda s: head(s, len(BODY)) + body(s, BODY[:sent]))
    assert word in ("truncated", "protocol_error")


def test_a_body_longer_than_declared_is_never_taken_whole(tmp_path: Path) -> None:
    word, got = outcome(tmp_path, lambda s: head(s, 10_000) + body(s, BODY))
    assert word != "ok" or got == BODY[:10_000]


def test_goaway_in_the_middle(tmp_path: Path) -> None:
    """A connection that is told to go away still finishes the streams that were accepted."""
    assert outcome(tmp_path, lambda s: half(s) + goaway(s) + body(s, BODY[20_000:])) == ("ok", BODY)
    lost, _ = outcome(tmp_path, lambda s: half(s) + goaway(0, 1))
    assert lost in ("truncated", "protocol_error", "connect", "too_slow")


def test_a_window_that_never_opens(tmp_path: Path) -> None:
    word, _ = outcome(tmp_path, lambda s: head(s, len(BODY)), deadline_s=0.5)
    assert word == "deadline"


def test_refused_streams_come_again_and_then_end(tmp_path: Path) -> None:
    server, settings = serve(tmp_path, *[lambda s: reset(s, REFUSED)] * 3, whole)

    async def patiently(transfer: Transfer) -> bytes:
        for _ in range(10):
            sink = Memory()
            try:
                await transfer.fetch(FetchRequest(server.url), sink)
            except Reasoned:
                continue
            return sink.body
        return b""

    with server:
        assert within(patiently, settings=settings) == BODY


def test_rapid_resets_do_not_harm_the_client(tmp_path: Path) -> None:
    server, settings = serve(tmp_path, reset)

    async def many(transfer: Transfer) -> int:
        failures = 0
        for _ in range(100):
            try:
                await transfer.fetch(FetchRequest(server.url), Discard())
            except Reasoned:
                failures += 1
        return failures

    with server:
        assert within(many, settings=settings) == 100


REFUSALS: dict[str, Script] = {"REFUSED_STREAM": lambda s: reset(s, REFUSED), "GOAWAY": lambda _: goaway(0)}


@pytest.mark.parametrize("how", REFUSALS)
def test_a_refused_stream_is_one_request(tmp_path: Path, how: str) -> None:
    """libcurl would send it six times in a row, and say that there was no connection."""
    server, settings = serve(tmp_path, REFUSALS[how])
    with server, pytest.raises(Reasoned) as caught:
        within(lambda t: t.fetch(FetchRequest(server.url), Memory()), settings=settings)
    assert (caught.value.reason, caught.value.disowned) == ("protocol_error", False)
    assert "refused the HTTP/2 stream" in str(caught.value)
    assert server.requests == 1


async def two(transfer: Transfer, url: str) -> bytes:
    await transfer.fetch(FetchRequest(url), Discard())
    sink = Memory()
    await transfer.fetch(FetchRequest(url), sink)
    return sink.body


@pytest.mark.parametrize("how", ["REFUSED_STREAM", "GOAWAY"])
def test_a_kept_connection_that_is_told_to_go_away_costs_one_more_request(tmp_path: Path, how: str) -> None:
    """Servers end a connection after so many requests: the next one goes over a new connection, in the same attempt."""
    server, settings = serve(tmp_path, whole, REFUSALS[how] if how != "GOAWAY" else lambda _: goaway(1), whole)
    with server:
        assert within(lambda t: two(t, server.url), settings=settings) == BODY
    assert server.requests == 3


def test_a_stream_that_is_refused_on_a_new_connection_too_ends(tmp_path: Path) -> None:
    server, settings = serve(tmp_path, whole, REFUSALS["REFUSED_STREAM"])
    with server, pytest.raises(Reasoned) as caught:
        within(lambda t: two(t, server.url), settings=settings)
    assert caught.value.reason == "protocol_error"
    assert server.requests == 3


def test_a_server_that_wants_http_1_is_asked_so_from_the_next_request_on(tmp_path: Path) -> None:
    """HTTP_1_1_REQUIRED looks to us like every refusal: one request, and the next ones go over HTTP/1.1."""
    server, settings = serve(tmp_path, lambda s: reset(s, 0xD), http1=BODY)

    async def often(transfer: Transfer) -> list[bytes]:
        with pytest.raises(Reasoned):
            await transfer.fetch(FetchRequest(server.url), Discard())
        sinks = [Memory() for _ in range(3)]
        for sink in sinks:
            await transfer.fetch(FetchRequest(server.url), sink)
        return [sink.body for sink in sinks]

    with server:
        assert within(often, settings=settings) == [BODY] * 3
    assert (server.requests, server.old_requests) == (1, 3)


def test_a_kept_connection_of_http_1_that_was_closed_costs_one_more_request(origin: Origin) -> None:
    """It is closed after the request was sent; over a new connection the same is an answer, and is not repeated."""
    url = origin.add("/a", Thing(BODY), raw(b""), Thing(BODY))
    assert within(lambda t: two(t, url)) == BODY
    assert origin.count("/a") == 3
    always = origin.add("/b", Thing(BODY), raw(b""))
    with pytest.raises(Reasoned) as caught:
        within(lambda t: two(t, always))
    assert (caught.value.reason, origin.count("/b")) == ("protocol_error", 3)
