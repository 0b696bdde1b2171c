"""What the kernel counts for a TCP connection (`struct tcp_info`, Linux 4.1). None: it does not say, or it is not TCP."""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

_LAST_DATA_RECEIVED: Final = 52  # milliseconds since the last data, or since the connection was made
_BYTES_RECEIVED: Final = 128  # read or not
_SIZE: Final = _BYTES_RECEIVED + 8


def bytes_received(descriptor: int) -> int | None:
    """Return how many bytes have arrived, whether they were read or not."""
    facts = _facts(descriptor)
    return None if facts is None else int(struct.unpack_from("=Q", facts, _BYTES_RECEIVED)[0])


def silent_s(descriptor: int) -> float | None:
    """Return for how long nothing has arrived."""
    facts = _facts(descriptor)
    return None if facts is None else struct.unpack_from("=I", facts, _LAST_DATA_RECEIVED)[0] / 1_000


def shut_down(descriptor: int) -> None:
    """End a connection in both directions; its owner sees the end and closes it."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # ended already
            return


def _facts(descriptor: int) -> bytes | None:
    try:
        connection = socket.socket(
            socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor
        )  # any family: not looked at
    except OSError:
        return None
    try:
        facts = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
    except OSError:
        return None
    finally:
        connection.detach()  # the descriptor is libcurl's
    return facts if len(facts) == _SIZE else None
