"""HTTP/2 servers that misbehave (torture D 59): streams reset, connections told to go away, windows that never open."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from longshore.domain.settings import Settings
from longshore.errors import Reasoned
from longshore.transfer import Discard, FetchRequest, Memory, Transfer
from tests.support.frames import REFUSED, FrameServer, Script, body, goaway, head, reset
from tests.support.origin import stamped
from tests.support.settings import tuned
from tests.transfer.test_servers import _context
from tests.transfer.wire import within

BODY = stamped(1, 40_000)


def whole(stream: int) -> bytes:
    return head(stream, len(BODY)) + body(stream, BODY)


def half(stream: int, *, declared: bool = True) -> bytes:
    return head(stream, len(BODY) if declared else None) + body(stream, BODY[:20_000], end=False)


def serve(tmp_path: Path, *scripts: Script) -> tuple[FrameServer, Settings]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return FrameServer(_context(authority, "127.0.0.1"), *scripts), tuned(ca_file=str(tmp_path / "ca.pem"), stall_s=20)


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
