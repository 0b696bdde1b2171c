"""A second answer inside TLS, and a connection that falls silent: neither is taken for the next request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Self

import pytest
import trustme

from longshore.config import load_settings
from longshore.errors import Reasoned
from longshore.transfer import Transfer
from longshore.transfer.api import FetchRequest, Memory
from tests.support.frames import FrameServer, body, head
from tests.transfer.test_real_servers import _context
from tests.transfer.wire import LOOPBACK

POISON = b"an answer that was not asked for"


def answer(content: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content)


class Doubling:
    """Sends a second answer after each answer, as a TLS record of its own in the same TCP segment."""

    def __init__(self, tls: ssl.SSLContext, *, think_s: float) -> None:
        self._tls, self._think_s = tls, think_s
        self.requests = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.base = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        with contextlib.suppress(OSError), self._tls.wrap_socket(raw, server_side=True) as sock:
            lines = sock.makefile("rb")
            while request := lines.readline():
                while lines.readline().strip():
                    pass
                self.requests += 1
                time.sleep(self._think_s)  # the server's own time: its answer comes after the client has looked
                path = request.split()[1]
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
                sock.sendall(answer(b"right bytes of " + path))
                sock.sendall(answer(POISON))
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    return made


def test_an_answer_in_a_tls_record_before_the_request_is_not_its_answer(tmp_path: Path, authority: trustme.CA) -> None:
    settings = load_settings(tmp_path, environ={}, network={"ca_file": str(tmp_path / "ca.pem")})

    async def fetch_all(base: str) -> list[bytes]:
        bodies = []
        async with Transfer(settings, LOOPBACK) as transfer:
            for number in range(6):
                sink = Memory()
                with contextlib.suppress(Reasoned):  # an answer that is not believed is a failed attempt
                    await transfer.fetch(FetchRequest(f"{base}/{number}"), sink)
                    bodies.append(sink.body)
        return bodies

    with Doubling(_context(authority, "127.0.0.1"), think_s=0.05) as server:
        bodies = asyncio.run(asyncio.wait_for(fetch_all(server.base), 60))
        assert len(bodies) >= 5
        assert all(body.startswith(b"right bytes of /") for body in bodies)
        assert len(set(bodies)) == len(bodies)
        assert server.requests <= 12


def test_a_silent_http2_connection_is_not_used_for_the_next_attempt(tmp_path: Path, authority: trustme.CA) -> None:
    """A lost NAT entry or a hung backend silences one connection; others work. The next attempt must make its own."""
    network = {"ca_file": str(tmp_path / "ca.pem")}
    settings = load_settings(tmp_path, environ={}, network=network, transfer={"stall_s": 0.8})
    silence = threading.Event()

    def silent(stream: int) -> bytes:
        silence.wait(30)  # this connection is read no more
        return b""

    async def attempts(url: str) -> bytes:
        async with Transfer(settings, LOOPBACK) as transfer:
            with pytest.raises(Reasoned, match="no byte"):
                await transfer.fetch(FetchRequest(url), Memory())
            sink = Memory()
            await transfer.fetch(FetchRequest(url), sink)
            return sink.body

    with FrameServer(
        _context(authority, "127.0.0.1"), silent, lambda stream: head(stream, 5) + body(stream, b"right")
    ) as server:
        try:
            assert asyncio.run(asyncio.wait_for(attempts(server.url), 30)) == b"right"
        finally:
            silence.set()
