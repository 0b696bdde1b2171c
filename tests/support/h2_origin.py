"""The hostile origin over HTTP/2: the same behaviours, sent as frames. What ends a connection there resets a stream here."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Self

from hpack import Decoder

from tests.support import frames
from tests.support.frames import ACK, END_STREAM, HEADERS, PING, SETTINGS, frame
from tests.support.origin import Behaviour
from tests.support.wire import Hangup, Request, Wire

NO_ERROR, INTERNAL = 0, 2


class H2Wire(Wire):
    """One stream, as a behaviour sees it."""

    def __init__(self, sock: socket.socket, stopping: threading.Event, stream: int, turn: threading.Lock) -> None:
        super().__init__(sock, stopping)
        self._stream, self._turn = stream, turn

    def _put(self, data: bytes) -> None:
        with self._turn:
            self.sock.sendall(data)

    def send(self, data: bytes) -> None:
        """Send raw bytes as data."""
        self._put(frames.body(self._stream, data, end=False))

    def answer(self, status: int, headers: Mapping[str, str | None], body: bytes = b"") -> None:
        """Send the head and what there is of the body; the stream is left open."""
        fields = [(name.lower(), value) for name, value in headers.items() if value is not None]
        block = frames.fields([(":status", str(status)), *(f for f in fields if f[0] != "connection")])
        self._put(frame(HEADERS, frames.END_HEADERS, self._stream, block))
        if body:
            self.send(body)

    def end(self) -> None:
        """End the stream as it should be."""
        self._put(frame(frames.DATA, END_STREAM, self._stream))

    def hangup(self) -> None:
        """Give up in the middle, without a word about why."""
        self._put(frames.reset(self._stream, NO_ERROR))
        raise Hangup

    def reset(self) -> None:
        """Give up in the middle, with an error."""
        self._put(frames.reset(self._stream, INTERNAL))
        raise Hangup

    def hang(self) -> None:
        """Send nothing more, until the origin closes."""
        self.stopping.wait(30)
        raise Hangup


class H2Origin:
    """Serves behaviours by path; a behaviour that returns ends its stream well."""

    def __init__(self, host: str, tls: ssl.SSLContext) -> None:
        tls.set_alpn_protocols(["h2"])
        self._tls, self._host = tls, host
        self._paths: dict[str, Behaviour] = {}
        self._stopping = threading.Event()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server((host, 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def add(self, path: str, behaviour: Behaviour) -> str:
        self._paths[path] = behaviour
        return self.url(path)

    def url(self, path: str) -> str:
        return f"https://{self._host}:{self._listener.getsockname()[1]}{path}"

    def close(self) -> None:
        self._stopping.set()
        for sock in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, peer = self._listener.accept()
                threading.Thread(target=self._connection, args=(sock, peer), daemon=True).start()

    def _connection(self, raw: socket.socket, peer: tuple[str, int]) -> None:
        with contextlib.suppress(OSError, ssl.SSLError), self._tls.wrap_socket(raw, server_side=True) as sock:
            self._open.append(sock)
            stream, decoder, turn = sock.makefile("rb"), Decoder(), threading.Lock()
            stream.read(len(frames.PREFACE))
            sock.sendall(frame(SETTINGS, 0, 0))
            while len(start := stream.read(9)) == 9:
                length, kind, flags = int.from_bytes(start[:3], "big"), start[3], start[4]
                payload = stream.read(length)
                if kind in (SETTINGS, PING) and not flags & ACK:
                    with turn:
                        sock.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
                elif kind == HEADERS:
                    fields = {
                        str(name): str(value)
                        for name, value in decoder.decode(payload[5:] if flags & 0x20 else payload)
                    }
                    wire = H2Wire(sock, self._stopping, int.from_bytes(start[5:], "big"), turn)
                    threading.Thread(target=self._answer, args=(wire, _request(fields, peer)), daemon=True).start()

    def _answer(self, wire: H2Wire, request: Request) -> None:
        with contextlib.suppress(Hangup, OSError):
            self._paths[request.path](request, wire)
            wire.end()


def _request(fields: dict[str, str], peer: tuple[str, int]) -> Request:
    headers = {name: value for name, value in fields.items() if not name.startswith(":")}
    return Request(fields[":method"], fields[":path"], headers, peer)
