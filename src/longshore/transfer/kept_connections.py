"""Detect unread bytes in idle HTTP/1 connections before they are reused.

HTTP/1 matches responses to requests only by their order. If a server sends more than it declared (a stray line, a
second response), the excess bytes stay in the connection and would become the start of the next response: another job
would complete with bytes that were never sent for its URL. libcurl checks an idle connection at most once a second, so
this module checks it before every request. libcurl's PREREQFUNCTION callback reports the chosen connection just before
sending; if it is readable, the request is sent on a new connection instead. HTTP/2 has stream identifiers and does not
need this.

The check costs about 3 microseconds per request.
"""

from __future__ import annotations

import select
from typing import Any, Final

import pycurl

_HTTP_1: Final = (pycurl.CURL_HTTP_VERSION_1_0, pycurl.CURL_HTTP_VERSION_1_1)
Place = tuple[str, int]  # local address and port, which identify a connection


class KeptConnections:
    """Idle connections by local address and port."""

    def __init__(self) -> None:
        self._sockets: dict[Place, int] = {}

    def left(self, easy: Any) -> None:
        """Record the connection that a finished response leaves for reuse."""
        if easy.getinfo(pycurl.INFO_HTTP_VERSION) in _HTTP_1:
            self._sockets[easy.getinfo(pycurl.LOCAL_IP), easy.getinfo(pycurl.LOCAL_PORT)] = easy.getinfo(
                pycurl.ACTIVESOCKET
            )

    def is_quiet(self, place: Place) -> bool:
        """Return whether a connection has no unread bytes; a new connection never has any."""
        descriptor = self._sockets.pop(place, -1)
        if descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return not any(event & select.POLLIN for _, event in poll.poll(0))
