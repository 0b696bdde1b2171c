"""Distinguish a name that does not exist from a resolver that does not answer: libcurl reports both alike."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Final

FRESH_S: Final = 60.0  # how long an answer is taken for granted


class Resolver:
    """Asks the system's resolver, once per name and minute, in a thread."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[float, asyncio.Future[bool]]] = {}

    async def is_unknown(self, host: str) -> bool:
        """Return whether the resolver says for certain that a host (with or without a port) does not exist."""
        now = time.monotonic()
        asked, answer = self._asked.get(host, (0.0, None))
        if answer is None or now - asked > FRESH_S or (answer.done() and not answer.result()):
            answer = asyncio.ensure_future(asyncio.to_thread(is_unknown, hostname_of(host)))
            self._asked[host] = (now, answer)
        return await asyncio.shield(answer)


def hostname_of(host: str) -> str:
    """Return a host without its port."""
    if not host.endswith("]") and ":" in host:
        host = host.rpartition(":")[0]
    return host.strip("[]")


def is_unknown(name: str) -> bool:
    """Ask the resolver. A temporary failure, or a name without an address, is not an answer."""
    try:
        socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return error.errno == socket.EAI_NONAME
    except UnicodeError:
        return True  # no label may be that long
    except OSError:
        return False
    return False
