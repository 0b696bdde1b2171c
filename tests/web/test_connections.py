"""Connections: half a request, a slow body or an unread answer takes nobody's place."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import eventually
from tests.support.site import Site

Start = Callable[..., Site]
HALF = b"GET / HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def one(**limits: Any) -> Site:
            running: AbstractContextManager[Site] = Site.local(tmp_path, **limits)
            return stack.enter_context(running)

        yield one


@pytest.fixture
def dial() -> Iterator[Callable[..., socket.socket]]:
    """Open connections that are closed after the test, each from an address of its own if wanted."""
    with ExitStack() as stack:

        def one(site: Site, data: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
            connection = socket.create_connection(("127.0.0.1", site.port), timeout=60, source_address=(source, 0))
            stack.enter_context(contextlib.closing(connection))
            connection.sendall(data)
            return connection

        yield one


Dial = Callable[..., socket.socket]


def answer(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def upload(site: Site, size: int, body: bytes = b"") -> bytes:
    secret = site.client("write").token
    lines = ["POST /api/v1/artifacts HTTP/1.1", f"Host: 127.0.0.1:{site.port}", f"Authorization: Bearer {secret}"]
    return "\r\n".join([*lines, f"Content-Length: {size}", "", ""]).encode() + body


@pytest.mark.parametrize("data", [b"", b"G", HALF])
def test_half_a_head_is_given_up(start: Start, dial: Dial, data: bytes) -> None:
    site = start(head_timeout_s=0.3)
    refused = answer(dial(site, data))
    assert refused.startswith(b"HTTP/1.1 408 ")
    assert b"x-content-type-options: nosniff" in refused
    eventually(lambda: site.connections.total() == 0, "the connection is forgotten", 20)


def test_a_head_that_drips_is_given_up(start: Start, dial: Dial) -> None:
    """The deadline is for the whole head: another byte does not prolong it."""
    site = start(head_timeout_s=0.5)
    connection = dial(site, HALF)
    connection.settimeout(0.02)
    for _ in range(3000):
        try:
            connection.sendall(b"a")
            if connection.recv(1):
                return
        except TimeoutError:
            continue
        except OSError:
            return
    raise AssertionError("it drips on")


def test_the_next_request_of_a_connection_has_a_deadline_of_its_own(start: Start, dial: Dial) -> None:
    site = start(head_timeout_s=0.3)
    whole = f"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode()
    connection = dial(site, whole)
    assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
    connection.sendall(HALF)
    assert b"HTTP/1.1 408 " in answer(connection)


def test_a_body_that_comes_too_slowly_is_given_up(start: Start, dial: Dial) -> None:
    site = start(body_window_s=0.3, min_upload_bytes_s=1000)
    assert answer(dial(site, upload(site, 1_000_000, b"x" * 10))).startswith(b"HTTP/1.1 408 ")
    eventually(lambda: site.serving() == 0 and site.service.requests.total() == 0, "its place is free", 20)


def test_a_body_that_comes_fast_enough_is_taken(start: Start, dial: Dial) -> None:
    site = start(body_window_s=0.2, min_upload_bytes_s=10)
    connection = dial(site, upload(site, 100))
    connection.settimeout(0.03)
    for _ in range(100):
        connection.sendall(b"x")
        with contextlib.suppress(TimeoutError):
            assert connection.recv(65_536).startswith(b"HTTP/1.1 201 ")
            return
    connection.settimeout(60)
    assert connection.recv(65_536).startswith(b"HTTP/1.1 201 ")


def test_the_rest_of_a_refused_body_is_not_waited_for(start: Start, dial: Dial) -> None:
    site = start(body_window_s=0.3)
    head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nContent-Length: 1000\r\n\r\n".encode()
    connection = dial(site, head)
    assert b"HTTP/1.1 401 " in answer(connection), "answered, and closed although the body never came"


def test_what_is_not_http_is_refused_with_the_security_headers(site: Site, dial: Dial) -> None:
    refused = answer(dial(site, b"\x16\x03\x01 hello\r\n\r\n"))
    assert refused.startswith(b"HTTP/1.1 400 ")
    assert b"content-security-policy: " in refused


def test_a_flood_of_one_address_closes_its_own_connections(start: Start, dial: Dial) -> None:
    site = start(connections_per_address=20, connections=1000)
    client = site.client("read")
    flood = [dial(site, HALF, "127.0.0.2") for _ in range(200)]
    eventually(lambda: site.connections.total() == 20, "twenty are left", 30)
    assert client.get("/api/v1/stats").status == 200
    assert [answer(one) for one in flood[:100]] == [b""] * 100, "the oldest went"
    whole = f"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nConnection: close\r\n\r\n".encode()
    assert answer(dial(site, whole, "127.0.0.2")).startswith(b"HTTP/1.1 200 "), "a new client there is served, too"


def test_when_all_is_full_the_largest_crowd_of_idle_ones_makes_room(start: Start, dial: Dial) -> None:
    site = start(connections=30, connections_per_address=30)
    quiet = [dial(site, HALF, "127.0.0.3") for _ in range(3)]
    eventually(lambda: site.connections.total() == 3, "they are there", 30)
    for _ in range(100):
        dial(site, HALF, "127.0.0.2")
    eventually(lambda: site.connections.total() == 30, "thirty are left", 30)
    assert site.client("read").get("/api/v1/stats").status == 200
    for one in quiet:
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.recv(1)  # still open


def test_if_every_connection_is_at_work_only_livez_answers(start: Start, dial: Dial) -> None:
    site = start(connections=6, connections_per_address=6)
    slow = [dial(site, upload(site, 1000)) for _ in range(6)]
    eventually(lambda: site.service.requests.total() == 6, "all are at work", 30)
    busy = site.client("read").get("/api/v1/stats")
    assert (busy.status, busy.json()["reason"]) == (503, "busy")
    assert busy.headers["x-frame-options"] == "DENY"
    assert site.stranger().get("/livez").status == 200
    for one in slow:
        one.close()
    eventually(lambda: site.client("read").get("/api/v1/stats").status == 200, "there is room again", 30)


def test_an_answer_that_is_not_read_is_given_up(start: Start, dial: Dial) -> None:
    site = start(unread_s=0.3)
    _, artifact_id = site.complete("https://large.example/", b"x" * 64_000_000)
    secret = site.client("read").token
    path = f"/api/v1/artifacts/{artifact_id}/content"
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nAuthorization: Bearer {secret}\r\n\r\n"
    connection = dial(site, head.encode())
    eventually(lambda: site.service.requests.total() == 1, "it is being sent", 30)
    eventually(lambda: site.service.requests.total() == 0 and site.serving() == 0, "and given up", 30)
    assert len(answer(connection)) < 64_000_000
