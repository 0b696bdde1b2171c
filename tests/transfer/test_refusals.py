"""An answer that is known counts, whatever becomes of its page; and what is wrong with a head is said as it is."""

from __future__ import annotations

import time

import pytest

from tests.support.origin import Behaviour, Origin, Thing, stamped
from tests.support.wire import Request, Wire
from tests.transfer.wire import fails, fetch

PAGES = ("cut", "reset", "drip", "silent", "bad chunk")


def page(code: int, kind: str, more: str = "") -> Behaviour:
    def behave(_request: Request, wire: Wire) -> None:
        framing = "Transfer-Encoding: chunked" if kind == "bad chunk" else "Content-Length: 1000"
        wire.send(f"HTTP/1.1 {code} No\r\n{framing}\r\n{more}\r\n".encode())
        if kind == "silent":
            wire.hang()
        wire.send(b"zz\r\nno chunk" if kind == "bad chunk" else b"x")
        while kind == "drip":
            wire.wait(0.2)
            wire.send(b"x")
        if kind == "reset":
            wire.reset()
        wire.hangup()

    return behave


@pytest.mark.parametrize("kind", PAGES)
@pytest.mark.parametrize("code", [404, 403, 500, 503])
def test_a_refusal_counts_without_its_page(code: int, kind: str) -> None:
    with Origin() as origin:
        url = origin.add("/x", page(code, kind, "Retry-After: 7\r\n"))
        began = time.monotonic()
        error = fails(url)
        assert time.monotonic() - began < 10
        assert (error.reason, error.retry_after_s, origin.count("/x")) == (f"http_{code}", 7, 1)


@pytest.mark.parametrize("kind", PAGES)
def test_a_redirect_is_followed_without_its_page(kind: str) -> None:
    with Origin() as origin:
        data = stamped(1, 5000)
        origin.add("/t", Thing(data))
        url = origin.add("/x", page(302, kind, "Location: /t\r\n"))
        assert fetch(url)[1] == data
        assert origin.count("/x") == origin.count("/t") == 1


@pytest.mark.parametrize("code", [200, 206])
def test_a_success_needs_its_body(code: int) -> None:
    with Origin() as origin:
        more = "Content-Range: bytes 0-999/1000\r\n" if code == 206 else ""
        assert fails(origin.add("/x", page(code, "cut", more))).reason == "truncated"


@pytest.mark.parametrize("code", [200, 404])
@pytest.mark.parametrize("value", ["gzip, chunked", "gzip"])
def test_a_transfer_coding_that_was_not_asked_for(code: int, value: str) -> None:
    def behave(_request: Request, wire: Wire) -> None:
        wire.send(f"HTTP/1.1 {code} OK\r\nTransfer-Encoding: {value}\r\n\r\n".encode() + b"0\r\n\r\n")
        wire.hangup()

    with Origin() as origin:
        assert fails(origin.add("/x", behave)).reason == "protocol_error"


@pytest.mark.parametrize("length", [1 << 63, 1 << 64, 10**30])
def test_a_length_beyond_all_numbers(length: int) -> None:
    def behave(_request: Request, wire: Wire) -> None:
        wire.send(f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nx".encode())
        wire.hangup()

    with Origin() as origin:
        error = fails(origin.add("/x", behave))
        assert error.reason == "protocol_error"
        assert "a length that is not acceptable" in str(error)
