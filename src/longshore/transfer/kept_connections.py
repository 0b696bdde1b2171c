"""Detect answers that came before their request on HTTP/1 connections that are used again.

HTTP/1 matches responses to requests only by their order. If a server sends more than it declared (a stray line, a
second response), the excess bytes stay in the connection and would become the start of the next response: another job
would complete with bytes that were never sent for its URL. libcurl checks an idle connection at most once a second, so
this module checks it at every request. HTTP/2 has stream identifiers and does not need this.

1. Just before sending, libcurl's PREREQFUNCTION callback reports the chosen connection. If it is readable, the request is
   sent on a new connection instead.
2. With TLS the excess bytes may have been read from the socket already, as a record that libcurl or OpenSSL buffers. So
   libcurl is made to read right after the request was sent (`sent_on`), and the kernel's count of received bytes is
   compared when the first header line arrives: if it has not grown since the request was sent, the line cannot be an
   answer to it.

3. When an answer has ended on a TLS connection that was used before, and more bytes follow it, then answers and requests
   of this connection may be out of step: the answer may be an earlier one, and this one's is still to come. It is not
   believed; the next attempt uses a new connection.

The checks cost about 3 microseconds each, the second about 10, with TLS only. What remains is a single extra answer that
arrives after the next request was sent and before the true answer has begun to arrive.
"""

from __future__ import annotations

import select
from typing import Any, Final, Self

import pycurl

from longshore.transfer.tcp_counters import bytes_received

_HTTP_1: Final = (pycurl.CURL_HTTP_VERSION_1_0, pycurl.CURL_HTTP_VERSION_1_1)
Place = tuple[str, int]  # local address and port, which identify a connection


def _events(descriptor: int) -> int:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLRDHUP)
    return sum(event for _, event in poll.poll(0))


class KeptConnection:
    """A connection that is used again, from just before the request to the first line of the answer."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: int | None = None

    def is_quiet(self) -> bool:
        """Return whether the connection has no unread bytes."""
        return not _events(self._descriptor) & select.POLLIN

    def counted(self, sent_on: list[int]) -> Self:
        """Remember how many bytes had arrived when the request was sent, and ask for a read after that."""
        self._before = bytes_received(self._descriptor)
        sent_on.append(self._descriptor)
        return self

    def has_answered(self) -> bool:
        """Return whether bytes have arrived since the request was sent."""
        return self._before is None or bytes_received(self._descriptor) != self._before


class KeptConnections:
    """Idle connections by local address and port."""

    def __init__(self) -> None:
        self._sockets: dict[Place, int] = {}
        self._users: dict[Place, Any] = {}  # the easy handle of the last request on a connection
        self._owners: dict[Place, tuple[str, bool]] = {}  # the tenant of the last request, and whether any had secrets
        self.sent_on: list[int] = []  # used again with TLS, not yet read since the request was sent

    def left(self, easy: Any) -> bool:
        """Record the connection that a finished response leaves for reuse; return whether nothing more has arrived."""
        descriptor = easy.getinfo(pycurl.ACTIVESOCKET)
        if descriptor < 0 or easy.getinfo(pycurl.INFO_HTTP_VERSION) not in _HTTP_1:
            return True
        place = easy.getinfo(pycurl.LOCAL_IP), easy.getinfo(pycurl.LOCAL_PORT)
        if self._users.pop(place, easy) is not easy:
            return True  # libcurl has sent the next request on it already
        self._sockets[place] = descriptor
        events = _events(descriptor)
        return not events & select.POLLIN or bool(events & select.POLLRDHUP)  # an end is not an answer

    def may_use(self, place: Place, tenant: str, secrets: bool, *, new: bool) -> bool:
        """Record whose request a connection carries; False if it carried another tenant's and either one has secrets.

        A server that reads past the end of a request must not get the next tenant's secrets as part of it.
        """
        before, had = self._owners.get(place, (tenant, False))
        if not new and before != tenant and (had or secrets):
            return False
        self._owners[place] = (tenant, secrets or (had and not new))
        return True

    def take(self, place: Place, easy: Any) -> KeptConnection | None:
        """Return the connection for a request of `easy` if it was used before; a new one has no unread bytes."""
        self._users[place] = easy
        descriptor = self._sockets.pop(place, -1)
        return KeptConnection(descriptor) if descriptor >= 0 else None
