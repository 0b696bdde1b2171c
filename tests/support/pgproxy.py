"""A proxy between the ledger and PostgreSQL that loses what a network loses: an answer, a request, or everything.

It reads the protocol's frames on the client's side, so that it can act exactly at a COMMIT.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import struct
import tempfile
import threading
from enum import Enum
from pathlib import Path
from typing import Self

SOCKET_NAME = ".s.PGSQL.5432"


class Loss(Enum):
    """What happens at the next COMMIT."""

    ANSWER = "answer"  # the server commits; the client never hears of it
    REQUEST = "request"  # the server never sees the COMMIT


class Proxy:
    """Listens on a socket of its own directory: `cluster.dsn(name, host=proxy.directory)`."""

    def __init__(self, server_directory: Path) -> None:
        self.server = str(server_directory / SOCKET_NAME)
        self.directory = Path(tempfile.mkdtemp(prefix="longshore-px-", dir="/tmp"))
        self.commits_lost = 0
        self._frames_left: int | None = None  # None: no limit
        self._plan: list[Loss] = []
        self._lock = threading.Lock()
        self._silences: list[threading.Event] = []
        self._ends: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.directory / SOCKET_NAME))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next_commits(self, *losses: Loss) -> None:
        """Say what happens to the next COMMITs, one each, over all connections."""
        with self._lock:
            self._plan += losses

    def cut_after(self, frames: int | None) -> None:
        """Let so many of the clients' messages through, over all connections, and cut the connection of the next."""
        with self._lock:
            self._frames_left = frames

    def fall_silent(self) -> None:
        """Make every connection that exists now half-open: it stays, and nothing comes through any more."""
        with self._lock:
            for silent in self._silences:
                silent.set()

    def close(self) -> None:
        """Cut everything."""
        self._listener.close()
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            _end(end)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.server)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._ends += [client, server]
                self._silences.append(silent := threading.Event())
            forward = (client, server, silent)
            threading.Thread(target=self._client_to_server, args=forward, daemon=True).start()
            threading.Thread(target=self._server_to_client, args=forward, daemon=True).start()

    def _server_to_client(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if not silent.is_set():
                    client.sendall(data)
        _end(client)

    def _client_to_server(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError, EOFError):
            server.sendall(_startup(client))
            while True:
                frame = _frame(client)
                if silent.is_set():
                    continue
                if self._is_cut():
                    break
                loss = self._loss_for(frame)
                if loss is Loss.REQUEST:
                    break
                if loss is Loss.ANSWER:
                    silent.set()  # of this connection only: nothing of the answer gets through
                server.sendall(frame)
                if loss is Loss.ANSWER:
                    server.shutdown(socket.SHUT_WR)  # the server finishes what it has, then hangs up and we do
                    return
        _end(server)
        _end(client)

    def _is_cut(self) -> bool:
        with self._lock:
            if self._frames_left is None:
                return False
            self._frames_left -= 1
            return self._frames_left == -1

    def _loss_for(self, frame: bytes) -> Loss | None:
        if frame[:1] not in b"QP" or b"COMMIT" not in frame:
            return None
        with self._lock:
            if not self._plan:
                return None
            self.commits_lost += 1
            return self._plan.pop(0)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _startup(source: socket.socket) -> bytes:
    head = _exactly(source, 4)
    return head + _exactly(source, struct.unpack("!I", head)[0] - 4)


def _frame(source: socket.socket) -> bytes:
    head = _exactly(source, 5)
    return head + _exactly(source, struct.unpack("!I", head[1:])[0] - 4)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
