"""libcurl's multi handle on the event loop, for HTTP: one epoll for all its sockets, one timer, no thread.

The loop watches only the epoll descriptor, so that a hundred ready sockets cost one wake-up, and each of libcurl's
frequent changes to a socket's events costs one system call and no asyncio calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from typing import Any, Final, Protocol

import pycurl

from longshore.transfer.kept_connections import KeptConnections

_READ, _WRITE = select.EPOLLIN, select.EPOLLOUT
_TROUBLE = select.EPOLLERR | select.EPOLLHUP
_OUT_OF_STEP: Final = 8  # CURLE_WEIRD_SERVER_REPLY, for which pycurl has no name
_WATCH = {
    pycurl.POLL_IN: _READ,
    pycurl.POLL_OUT: _WRITE,
    pycurl.POLL_INOUT: _READ | _WRITE,
}


class Exchange(Protocol):
    """A running easy handle."""

    easy: Any
    opened: int  # connections that were made for it; 0: it used an existing one
    secure: bool  # TLS

    def finished(self, code: int, message: str) -> None:
        """Handle libcurl's result; the easy handle was removed from the multi handle."""


class Reactor(Protocol):
    """Runs exchanges: `MultiLoop`, or `FileThreads` for protocols with which libcurl blocks."""

    kept: KeptConnections

    def start(self, exchange: Any) -> None:
        """Start an exchange; `exchange.finished` is called at its end."""

    def drop(self, exchange: Any) -> None:
        """End an exchange at once: `finished` is not called."""

    def resume(self, exchange: Any) -> None:
        """Resume a paused exchange."""


class MultiLoop:
    """Runs easy handles. Everything happens on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, connections: int) -> None:
        self._loop = loop
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections)
        self._connections = connections
        self._bound: int | None = None
        self._multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
        self.kept = KeptConnections()
        self._epoll = select.epoll()
        self._watched: dict[int, int] = {}
        self._active: dict[Any, Exchange] = {}
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        self._kicked = False
        self._closed = False
        loop.add_reader(self._epoll.fileno(), self._ready)

    def __len__(self) -> int:
        return len(self._active)

    def exchanges(self) -> list[Exchange]:
        """Return the running exchanges."""
        return list(self._active.values())

    def start(self, exchange: Exchange) -> None:
        """Start an exchange; `exchange.finished` is called at its end."""
        self._multi.add_handle(exchange.easy)
        self._active[exchange.easy] = exchange

    def drop(self, exchange: Exchange) -> None:
        """End an exchange at once: its connection is closed and `finished` is not called."""
        if self._active.pop(exchange.easy, None) is not None:
            self._multi.remove_handle(exchange.easy)

    def nudge(self) -> None:
        """Make libcurl check every socket, so that a missed event delays a transfer only until the next call."""
        if self._closed:
            return
        for fd in list(self._watched):
            if fd in self._watched:
                self._multi.socket_action(fd, 0)
        self._kicked_now()

    def resume(self, exchange: Exchange) -> None:
        """Resume a paused exchange."""
        if exchange.easy not in self._active:
            return
        try:
            exchange.easy.pause(pycurl.PAUSE_CONT)  # delivers the buffered bytes, which the sink may refuse
        except pycurl.error as error:
            self.drop(exchange)
            exchange.finished(*error.args)
        else:
            self._kick()

    def bound(self, connections: int | None) -> None:
        """Limit the number of connections, including idle ones: libcurl closes idle ones before it opens another.

        Further requests would wait inside libcurl, so the caller must not start more than this at once. None: no limit.
        """
        if connections == self._bound:
            return
        self._bound = connections
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections or self._connections)
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, connections or 0)

    def close(self) -> None:
        """Drop all exchanges and close the sockets."""
        if self._closed:
            return
        self._closed = True
        for exchange in self.exchanges():
            self.drop(exchange)
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._epoll.fileno())
        self._multi.close()
        self._epoll.close()

    # --- callbacks from libcurl

    def _watch(self, what: int, fd: int, _multi: object, _data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            if self._watched.pop(fd, None) is not None:
                with contextlib.suppress(OSError):  # already closed, and so removed from the epoll
                    self._epoll.unregister(fd)
            return
        mask = _WATCH.get(what, 0)
        if fd in self._watched:
            try:
                self._epoll.modify(fd, mask)
            except FileNotFoundError:  # the descriptor number was closed and reused
                self._epoll.register(fd, mask)
        else:
            try:
                self._epoll.register(fd, mask)
            except FileExistsError:
                self._epoll.modify(fd, mask)
        self._watched[fd] = mask

    def _set_timer(self, timeout_ms: int) -> None:
        if timeout_ms < 0:
            self._due = 0.0
        elif timeout_ms == 0:
            self._kick()
        else:
            self._due = self._loop.time() + timeout_ms / 1000
            self._arm()

    def _arm(self) -> None:
        """Keep one timer that fires no later than the due time; a timer that fires early is armed again."""
        if isinstance(self._timer, asyncio.TimerHandle) and not self._timer.cancelled():
            if self._timer.when() <= self._due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due, self._timed_out)

    def _kick(self) -> None:
        if not self._kicked and not self._closed:
            self._kicked = True
            self._loop.call_soon(self._kicked_now)

    # --- callbacks from the event loop

    def _kicked_now(self) -> None:
        self._kicked = False
        if not self._closed:
            self._due = 0.0  # libcurl sets its next timeout after every such call
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
            self._reap()

    def _timed_out(self) -> None:
        self._timer = None
        if self._closed or not self._due:
            return
        if self._due > self._loop.time() + 0.001:
            self._arm()
            return
        self._kicked_now()

    def _ready(self) -> None:
        act = self._multi.socket_action
        for fd, events in self._epoll.poll(0):
            flags = 0
            if events & _READ:
                flags |= pycurl.CSELECT_IN
            if events & _WRITE:
                flags |= pycurl.CSELECT_OUT
            if events & _TROUBLE:
                flags |= pycurl.CSELECT_ERR | pycurl.CSELECT_IN
            if fd in self._watched:
                act(fd, flags)
        self._reap()

    def _reap(self) -> None:
        while self.kept.sent_on:  # before the answer can arrive: bytes that are buffered now are older than the request
            self._multi.socket_action(self.kept.sent_on.pop(), pycurl.CSELECT_IN)
        queued = 1
        while queued:
            queued, done, broken = self._multi.info_read()
            for easy in done:
                exchange = self._active.get(easy)
                if self.kept.left(easy) or exchange is None or exchange.opened or not exchange.secure:
                    self._over(easy, 0, "")
                else:
                    self._over(easy, _OUT_OF_STEP, "more bytes follow the answer")
            for easy, code, message in broken:
                self._over(easy, code, message)

    def _over(self, easy: Any, code: int, message: str) -> None:
        exchange = self._active.pop(easy, None)
        if exchange is not None:
            self._multi.remove_handle(easy)
            exchange.finished(code, message)
