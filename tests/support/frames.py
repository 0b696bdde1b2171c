"""A hostile HTTP/2 server: raw frames over TLS, scripted per path. No more of the protocol than a lie needs."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import BinaryIO, Self

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1
REFUSED, INTERNAL = 7, 2
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def head(stream: int, length: int | None, *, etag: str = '"v1"') -> bytes:
    """200 with these fields, as literals without indexing."""
    block = b"\x88" + _literal(b"etag", etag.encode())
    if length is not None:
        block += _literal(b"content-length", str(length).encode())
    return frame(HEADERS, END_HEADERS, stream, block)


def fields(pairs: list[tuple[str, str]]) -> bytes:
    """Return a block of header fields, as literals without indexing."""
    return b"".join(_literal(name.encode(), value.encode("latin-1")) for name, value in pairs)


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def body(stream: int, data: bytes, *, end: bool = True) -> bytes:
    pieces = [data[at : at + 16_384] for at in range(0, len(data), 16_384)] or [b""]
    last = len(pieces) - 1
    return b"".join(frame(DATA, END_STREAM if end and n == last else 0, stream, p) for n, p in enumerate(pieces))


def reset(stream: int, code: int = INTERNAL) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def goaway(last_stream: int, code: int = 0) -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", last_stream, code))


Script = Callable[[int], bytes]  # stream → what is sent; then the connection stays as it is


class FrameServer:
    """Answers the n-th request (over all connections) with the n-th script; the last one repeats."""

    def __init__(self, tls: ssl.SSLContext, *scripts: Script, http1: bytes | None = None) -> None:
        tls.set_alpn_protocols(["h2"] if http1 is None else ["h2", "http/1.1"])
        self._http1 = http1  # the body of each answer over HTTP/1.1; None: it speaks HTTP/2 only
        self._tls, self._scripts = tls, scripts
        self.requests = 0
        self.old_requests = 0  # those over HTTP/1.1
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}/"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        with contextlib.suppress(OSError), self._tls.wrap_socket(raw, server_side=True) as sock:
            self._open.append(sock)
            stream = sock.makefile("rb")
            if sock.selected_alpn_protocol() != "h2":
                self._serve_http1(sock, stream)
                return
            assert stream.read(len(PREFACE)) == PREFACE
            sock.sendall(frame(SETTINGS, 0, 0))
            while len(start := stream.read(9)) == 9:
                length, kind, flags = int.from_bytes(start[:3], "big"), start[3], start[4]
                payload = stream.read(length)
                if kind == SETTINGS and not flags & ACK:
                    sock.sendall(frame(SETTINGS, ACK, 0))
                elif kind == PING and not flags & ACK:
                    sock.sendall(frame(PING, ACK, 0, payload))
                elif kind == HEADERS:
                    sock.sendall(self._script()(int.from_bytes(start[5:], "big")))

    def _serve_http1(self, sock: ssl.SSLSocket, stream: BinaryIO) -> None:
        while self._http1 is not None and stream.readline():
            while stream.readline().strip():
                pass
            self.old_requests += 1
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(self._http1), self._http1))

    def _script(self) -> Script:
        with self._lock:
            self.requests += 1
            return self._scripts[min(self.requests, len(self._scripts)) - 1]
