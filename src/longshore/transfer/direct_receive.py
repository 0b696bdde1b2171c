"""Receive the rest of a large plain body from its socket directly into the sink's memory, bypassing libcurl.

libcurl passes 16 KiB to each callback, and each becomes a bytes object that is copied again. For a body that arrives
faster than it can be hashed, this is most of the cost of receiving. If the rest is only bytes of a declared length
(HTTP/1 without TLS or a proxy), recv_into() can write them to their final buffer. libcurl keeps the connection,
paused, and closes it afterwards.

libcurl may hold bytes that it has not passed on. To detect this, ask the kernel how many bytes were read from this
connection. If the number differs from the received head and body, libcurl continues the transfer.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Callable
from typing import Final, Protocol

from longshore.transfer.tcp_counters import bytes_received

FROM: Final = 1 << 20  # bytes of a body that libcurl always receives: by then the sink knows the content type
WORTH: Final = 16 << 20  # bytes that must remain: the connection is closed afterwards, and a new one costs time
_FIN: Final = 1  # the kernel counts a closing peer as one byte


class Open(Protocol):
    """A sink that can provide memory for the next bytes, instead of taking bytes objects."""

    def room(self) -> memoryview | None:
        """Return memory for the next bytes; None while the sink needs `write`. An exception ends the transfer."""

    def filled(self, count: int) -> bool:
        """Accept `count` bytes at the start of the memory from `room`; False pauses, as in `write`."""


def has_room(sink: Open) -> bool:
    """Return whether a sink provides memory now."""
    try:
        return sink.room() is not None
    except Exception:  # noqa: BLE001  the sink has failed; the next write raises it to the caller
        return False


class DirectReceive:
    """A connection that is read without libcurl, on the event loop's thread."""

    def __init__(self, fd: int, sink: Open, ready: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(fileno=os.dup(fd))  # independent of libcurl's descriptor
        self._ready = ready
        self.sink = sink

    def go_on(self) -> None:
        """Start calling `ready` when the socket is readable."""
        self._loop.add_reader(self._socket, self._ready)

    def rest(self) -> None:
        """Stop calling `ready` until `go_on` is called."""
        self._loop.remove_reader(self._socket)

    def receive(self, room: memoryview) -> int | None:
        """Receive once into `room`; return 0 at the end of the connection, None if no data is available."""
        try:
            return self._socket.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return None

    def taken(self) -> int | None:
        """Return how many bytes were read from this connection by any reader; None if the kernel does not report it."""
        for _ in range(8):
            before, waiting, after = self._arrived(), self._waiting(), self._arrived()
            if before is None or waiting is None:
                return None
            if before == after:  # no bytes arrived between the two calls
                return before - waiting
        return None

    def strayed(self, count: int) -> bool:
        """Return whether another reader consumed bytes of this connection, so that the body has a gap."""
        taken = self.taken()
        return taken is not None and taken - count not in (0, _FIN)

    def close(self) -> None:
        """Close the duplicated descriptor."""
        self.rest()
        self._socket.close()

    def _arrived(self) -> int | None:
        return bytes_received(self._socket.fileno())

    def _waiting(self) -> int | None:
        try:
            return int(struct.unpack("i", fcntl.ioctl(self._socket, termios.FIONREAD, bytes(4)))[0])
        except OSError:
            return None
