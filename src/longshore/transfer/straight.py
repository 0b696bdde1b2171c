"""The rest of a large plain body, from its socket straight into the sink's memory, past libcurl.

libcurl hands over 16 KiB at a time, and each becomes an object that is copied once more: for a body that comes faster than
it can be hashed, that is the larger part of what receiving costs. Where nothing is left to do but to count bytes (HTTP/1
without TLS or a proxy, a declared length), the kernel can write them where they belong. libcurl keeps the connection,
paused, and closes it afterwards.

Whether libcurl holds bytes that it has not handed over is not guessed: the kernel is asked how many were read from this
connection. Any other number than the head's and the body's that reached us, and libcurl goes on as ever.
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

FROM: Final = 1 << 20  # bytes of a body that libcurl carries in any case: by then its sink knows what it is
WORTH: Final = 16 << 20  # bytes that must be left: this connection is closed afterwards, and a new one costs time
_ARRIVED: Final = 128  # where `struct tcp_info` has tcpi_bytes_received (Linux 4.1)
_FIN: Final = 1  # the kernel counts a closing peer as one byte


class Open(Protocol):
    """A sink that can name memory for the bytes to come, instead of taking objects."""

    def room(self) -> memoryview | None:
        """Give memory for the next bytes; None while they have to come by `write`. Raise what ends the transfer."""

    def filled(self, count: int) -> bool:
        """Take this many bytes, which lie at the beginning of what `room` gave; False pauses, as in `write`."""


class Straight:
    """One connection that is read past libcurl. Everything happens on the loop's thread."""

    def __init__(self, fd: int, sink: Open, ready: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(fileno=os.dup(fd))  # ours to close, whatever libcurl does with its own
        self._ready = ready
        self.sink = sink

    def go_on(self) -> None:
        """Tell from now on when there is something to receive."""
        self._loop.add_reader(self._socket, self._ready)

    def rest(self) -> None:
        """Tell nothing for now."""
        self._loop.remove_reader(self._socket)

    def receive(self, room: memoryview) -> int | None:
        """Receive once into this memory; 0 at the end of the connection, None if nothing was there."""
        try:
            return self._socket.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return None

    def taken(self) -> int | None:
        """Count what was read from this connection, by whomever, since it began; None where the kernel cannot say."""
        for _ in range(8):
            before, waiting, after = self._arrived(), self._waiting(), self._arrived()
            if before is None or waiting is None:
                return None
            if before == after:  # nothing came while we asked
                return before - waiting
        return None

    def strayed(self, count: int) -> bool:
        """Tell whether anybody else has read from this connection: a body with a hole must never be whole."""
        taken = self.taken()
        return taken is not None and taken - count not in (0, _FIN)

    def close(self) -> None:
        """Give our descriptor back."""
        self.rest()
        self._socket.close()

    def _arrived(self) -> int | None:
        try:
            facts = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ARRIVED + 8)
        except OSError:  # not TCP
            return None
        return int(struct.unpack_from("=Q", facts, _ARRIVED)[0]) if len(facts) == _ARRIVED + 8 else None

    def _waiting(self) -> int | None:
        try:
            return int(struct.unpack("i", fcntl.ioctl(self._socket, termios.FIONREAD, bytes(4)))[0])
        except OSError:
            return None
