"""Limit how often libcurl sends the request of one exchange.

libcurl repeats a request by itself, up to five times and without a pause, if a server refuses its HTTP/2 stream
(REFUSED_STREAM, GOAWAY). One attempt would be six requests, past every limit of its host. There is no option against
that, so the callbacks refuse a further connection and a further request: the next attempt asks again, when it is due.

One repeat stays: a request over a kept connection, which the server may have closed at the same moment. It says nothing
about the request, and servers close idle connections all the time.
"""

from __future__ import annotations


class RequestLimit:
    """The requests of one exchange."""

    __slots__ = ("_on_kept", "_sent", "repeated")

    def __init__(self) -> None:
        self._sent = 0
        self._on_kept = False
        self.repeated = False  # libcurl wanted to send the request again

    def may_connect(self) -> bool:
        """Return whether a connection for the request may be opened."""
        if self._sent == 0 or (self._sent == 1 and self._on_kept):
            return True
        self.repeated = True
        return False

    def may_send(self, *, on_kept: bool) -> bool:
        """Return whether the request may be sent, and count it; `on_kept`: over a connection of an earlier exchange."""
        if not self.may_connect():
            return False
        self._sent += 1
        self._on_kept = on_kept
        return True
