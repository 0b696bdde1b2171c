"""Connections that an HTTP/1 answer left behind: bytes that arrive there before the next request are not its answer.

HTTP/1 matches answers to requests by their order alone. A server that sends more than it declared (a stray line, a second
answer) leaves bytes in the connection, and the next request's answer would begin with them: another job would complete with
bytes that were never sent for its URL. libcurl looks at a kept connection at most once a second, so we look each time: it
tells us which connection it has chosen just before it sends (PREREQFUNCTION), and one that is readable then is given up; the
request is sent again on a new one. HTTP/2 numbers its streams and needs none of this.

Costs about 3 microseconds a request.
"""

from __future__ import annotations

import select
from typing import Any, Final

import pycurl

_HTTP_1: Final = (pycurl.CURL_HTTP_VERSION_1_0, pycurl.CURL_HTTP_VERSION_1_1)
Place = tuple[str, int]  # our own address and port: what libcurl names a connection by


class KeptConnections:
    """What is known of idle connections, by their own end."""

    def __init__(self) -> None:
        self._sockets: dict[Place, int] = {}

    def left(self, easy: Any) -> None:
        """Note the connection that an answer has left for the next request."""
        if easy.getinfo(pycurl.INFO_HTTP_VERSION) in _HTTP_1:
            self._sockets[easy.getinfo(pycurl.LOCAL_IP), easy.getinfo(pycurl.LOCAL_PORT)] = easy.getinfo(
                pycurl.ACTIVESOCKET
            )

    def is_quiet(self, place: Place) -> bool:
        """Return whether nothing has come on a connection since its last answer; a new one always is."""
        descriptor = self._sockets.pop(place, -1)
        if descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return not any(event & select.POLLIN for _, event in poll.poll(0))
