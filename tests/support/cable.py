"""A network cable that can be pulled: everything one host says to one server goes through it.

Pulled, it swallows nothing and carries nothing: connections stay open and silent, as on a link that is down; plugged in
again, what waited goes on. The server is a TCP address or a Unix socket.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Self

Address = tuple[str, int] | Path


class Cable:
    """One listening port, one server behind it."""

    def __init__(self, server: Address, host: str = "127.0.0.1") -> None:
        self._server = server
        self._plugged = threading.Event()
        self._plugged.set()
        self._closing = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server((host, 0), backlog=256)
        self.host, self.port = host, int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="cable", daemon=True).start()

    def pull(self) -> None:
        """Take the link down; nobody is told."""
        self._plugged.clear()

    def plug(self) -> None:
        """Bring the link back."""
        self._plugged.set()

    def close(self) -> None:
        """End every connection and listen no more."""
        self._closing = True
        self._plugged.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            ends = list(self._open)
        for end in ends:
            _hang_up(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(client,), name="cable-join", daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        self._plugged.wait()
        try:
            server = self._connect()
        except OSError:
            _hang_up(client)
            client.close()
            return
        with self._lock:
            self._open |= {client, server}
        there = threading.Thread(target=self._carry, args=(client, server), name="cable-there", daemon=True)
        there.start()
        self._carry(server, client)
        there.join()
        with self._lock:
            self._open -= {client, server}
        client.close()
        server.close()

    def _connect(self) -> socket.socket:
        if isinstance(self._server, Path):
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._server))
            return server
        return socket.create_connection(self._server, timeout=None)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._plugged.wait()
                target.sendall(data)
        self._plugged.wait()
        _hang_up(target)
        _hang_up(source)


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
