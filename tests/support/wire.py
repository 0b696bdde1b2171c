"""What the hostile origin is made of: bodies with stamps, a request, and one connection as a behaviour sees it."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass

_RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")
_BLOCK = 64


def stamped(version: int, size: int) -> bytes:
    """Make a body whose every 64-byte block says its version and offset, so that a mix of two versions shows."""
    blocks = (b"v%09d o%015d %s\n" % (version, at, b"." * 35) for at in range(0, size, _BLOCK))
    return b"".join(blocks)[:size]


def check_stamps(body: bytes) -> int:
    """Return the one version that a stamped body consists of; fail when blocks are mixed or displaced."""
    versions = set()
    for at in range(0, len(body), _BLOCK):
        block = body[at : at + 27]
        if len(block) == 27:
            assert block[:1] == b"v" and int(block[12:27]) == at, f"offset {at} holds {block!r}"
        if len(block) >= 10:
            versions.add(int(block[1:10]))
    assert len(versions) == 1, f"versions mixed: {sorted(versions)}"
    return versions.pop()


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    peer: tuple[str, int]

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def wanted(self, total: int) -> tuple[int, int] | None:
        """Give the asked range as (first, last), clipped; None when there is none (or one we do not read)."""
        match = _RANGE.match(self.headers.get("range", ""))
        if not match or match.groups() == ("", ""):
            return None
        first, last = match.groups()
        if not first:
            return max(0, total - int(last)), total - 1
        return int(first), min(int(last), total - 1) if last else total - 1


class Hangup(Exception):
    """The behaviour ends the connection."""


class Wire:
    """One connection, as a behaviour sees it."""

    def __init__(self, sock: socket.socket, stopping: threading.Event) -> None:
        self.sock = sock
        self.stopping = stopping

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def answer(self, status: int, headers: Mapping[str, str | None], body: bytes = b"") -> None:
        """Send status line, headers (None leaves one out) and body, exactly as given."""
        lines = [f"HTTP/1.1 {status} {'OK' if status < 300 else 'No'}"]
        lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    def wait(self, seconds: float) -> None:
        """Sleep, but not longer than the origin lives."""
        if self.stopping.wait(seconds):
            raise Hangup

    def hang(self) -> None:
        """Send nothing more until the client leaves or the origin closes."""
        self.sock.settimeout(0.1)
        while not self.stopping.is_set():
            with contextlib.suppress(TimeoutError, ssl.SSLWantReadError):
                if not self.sock.recv(65_536):
                    break
        raise Hangup

    def hangup(self) -> None:
        raise Hangup

    def reset(self) -> None:
        """End with RST instead of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Hangup
