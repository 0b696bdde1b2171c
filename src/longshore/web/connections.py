"""Connections of one server: how many, and how long a client may take.

uvicorn waits for ever for the rest of a request, so clients that send half of one could take all places. Here

* a request head has a deadline, a body a minimum speed, and an answer must be read;
* a connection without a request under way (half a head, keep-alive, the rest of a body that nobody wants) is *idle*. When an
  address or the whole server has too many connections, the oldest idle one is closed: of the same address, or of the
  address with the most of them. So those who flood close their own connections, and a new client is served;
* if every connection serves a request, a new one is *extra*: it is told to come again, except at `/livez`.

How many requests are served at a time is limited behind this door, by token (`security/shares.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from longshore.domain.policy.forwarded import is_trusted, networks
from longshore.web.security.middleware import SECURITY
from longshore.web.server_options import ServerOptions

TEXTS: Final = {400: "Bad Request", 408: "Request Timeout"}


class Connections:
    """The open connections, by address."""

    def __init__(self, settings: ServerOptions) -> None:
        self.settings = settings
        self._proxies = networks(settings.trusted_proxies)  # many clients behind one address
        self._open: Counter[str] = Counter()
        self._idle: dict[str, dict[Connection, None]] = {}  # oldest first

    def total(self) -> int:
        """Return how many connections are open."""
        return self._open.total()

    def opened(self, connection: Connection) -> None:
        """Count a connection; close an idle one, or mark this one as extra, if there are too many."""
        address = connection.address
        self._open[address] += 1
        if self._open[address] > self.settings.connections_per_address and not is_trusted(address, self._proxies):
            crowd = self._idle.get(address, {})
        elif self.total() > self.settings.connections:
            crowd = max(self._idle.values(), key=len, default={})
        else:
            crowd = None
        if crowd:
            next(iter(crowd)).give_way()
        connection.extra = crowd is not None and not crowd
        self.idle(connection)

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self.busy(connection)
        self._open[connection.address] -= 1
        if not self._open[connection.address]:
            del self._open[connection.address]

    def idle(self, connection: Connection) -> None:
        """Note that a connection has no request under way."""
        self._idle.setdefault(connection.address, {}).setdefault(connection)

    def busy(self, connection: Connection) -> None:
        """Note that a connection has a request under way, or is closed."""
        crowd = self._idle.get(connection.address, {})
        crowd.pop(connection, None)
        if not crowd:
            self._idle.pop(connection.address, None)


class Connection(H11Protocol):
    """One connection with deadlines for its client."""

    def __init__(self, table: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.table, self.settings = table, table.settings
        self.address = "local"
        self.extra = False  # beyond the limit: only `/livez` is answered
        self._counted = False
        self._waits_for: object = None  # h11's state of the client, while it has a deadline
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._received = 0
        self._held_up = False  # by us: the body was not read as fast as it came

    # ---- what uvicorn calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else "local"
        self._counted = True
        self.table.opened(self)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on and start or stop the client's deadlines."""
        self._received += len(data)
        if self.timeout_keep_alive_task is not None:
            self._waits_for = None  # the first bytes of another request: its deadline begins now
        super().data_received(data)
        self._held_up = self._held_up or self.flow.read_paused
        self._watch()

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for it."""
        super().on_response_complete()
        if self.extra and not self.transport.is_closing():
            self.transport.close()
        self._watch()

    def pause_writing(self) -> None:
        """Start the deadline of a client that does not read its answer."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.settings.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that deadline."""
        super().resume_writing()
        self._stop_unread()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, with the security headers."""
        self._refuse(400, msg)

    def _should_upgrade(self) -> bool:
        return False  # there are no WebSockets, and a request must not be able to write warnings

    # ---- deadlines

    def give_way(self) -> None:
        """Close an idle connection at once, for a new one."""
        self._forget()
        self.transport.abort()

    def _watch(self) -> None:
        if not self._counted or self.transport.is_closing():
            return
        serving = self.cycle is not None and not self.cycle.response_complete
        (self.table.busy if serving else self.table.idle)(self)
        if serving and self.extra:
            self.scope["state"]["extra"] = True
        state = self.conn.their_state
        if state is self._waits_for:
            return
        self._stop_timer()
        self._waits_for = state
        if state is h11.IDLE:
            self._timer = self.loop.call_later(
                self.settings.head_timeout_s, self._refuse, 408, "the request came too slowly"
            )
        elif state is h11.SEND_BODY:
            self._received, self._held_up = 0, False
            self._timer = self.loop.call_later(self.settings.body_window_s, self._check_speed)

    def _check_speed(self) -> None:
        enough = self._received >= self.settings.min_upload_bytes_s * self.settings.body_window_s
        if self.cycle.response_complete or not (enough or self._held_up):
            self._refuse(408, "the body came too slowly")
            return
        self._received, self._held_up = 0, self.flow.read_paused
        self._timer = self.loop.call_later(self.settings.body_window_s, self._check_speed)

    def _refuse(self, status: int, text: str) -> None:
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            lines = [f"HTTP/1.1 {status} {TEXTS[status]}", *(f"{name}: {value}" for name, value in SECURITY)]
            lines += ["content-type: text/plain; charset=utf-8", f"content-length: {len(text)}", "connection: close"]
            self.transport.write("\r\n".join([*lines, "", text]).encode())
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # nothing that the app sends now may follow this answer
            cycle.message_event.set()
        self.transport.close()

    def _forget(self) -> None:
        if self._counted:
            self._counted = False
            self.table.closed(self)
        self._stop_timer()
        self._stop_unread()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
