"""libcurl's multi handle on the event loop: one epoll for all its sockets, one timer, no thread.

The loop watches only the epoll's own descriptor, so that a hundred ready sockets cost one wake-up, and libcurl's frequent
changes of mind about a socket cost one system call and no asyncio machinery.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from typing import Any, Protocol

import pycurl

from longshore.transfer.kept_connections import KeptConnections

_READ, _WRITE = select.EPOLLIN, select.EPOLLOUT
_TROUBLE = select.EPOLLERR | select.EPOLLHUP
_WATCH = {
    pycurl.POLL_IN: _READ,
    pycurl.POLL_OUT: _WRITE,
    pycurl.POLL_INOUT: _READ | _WRITE,
}


class Exchange(Protocol):
    """One easy handle at work."""

    easy: Any

    def finished(self, code: int, message: str) -> None:
        """Take libcurl's verdict; the handle has left the multi."""


class Reactor:
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
        """Give what is at work now."""
        return list(self._active.values())

    def start(self, exchange: Exchange) -> None:
        """Begin; `exchange.finished` is called when it is over."""
        self._multi.add_handle(exchange.easy)
        self._active[exchange.easy] = exchange

    def drop(self, exchange: Exchange) -> None:
        """End an exchange at once: its connection is closed and `finished` is not called."""
        if self._active.pop(exchange.easy, None) is not None:
            self._multi.remove_handle(exchange.easy)

    def nudge(self) -> None:
        """Let libcurl look at every socket by itself: whatever event was missed by anybody costs this long, no more."""
        if self._closed:
            return
        for fd in list(self._watched):
            if fd in self._watched:
                self._multi.socket_action(fd, 0)
        self._kicked_now()

    def resume(self, exchange: Exchange) -> None:
        """Let a paused exchange go on."""
        if exchange.easy not in self._active:
            return
        try:
            exchange.easy.pause(pycurl.PAUSE_CONT)  # hands over what was kept back, which the sink may refuse
        except pycurl.error as error:
            self.drop(exchange)
            exchange.finished(*error.args)
        else:
            self._kick()

    def bound(self, connections: int | None) -> None:
        """Have no more connections than this, idle ones included: libcurl closes idle ones before it opens another.

        Requests beyond it would wait inside libcurl, so the caller starts no more than this at once. None: no bound.
        """
        if connections == self._bound:
            return
        self._bound = connections
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections or self._connections)
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, connections or 0)

    def close(self) -> None:
        """Drop everything and give the sockets back."""
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

    # --- libcurl asks

    def _watch(self, what: int, fd: int, _multi: object, _data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            if self._watched.pop(fd, None) is not None:
                with contextlib.suppress(OSError):  # closed already: the kernel has forgotten it
                    self._epoll.unregister(fd)
            return
        mask = _WATCH.get(what, 0)
        if fd in self._watched:
            try:
                self._epoll.modify(fd, mask)
            except FileNotFoundError:  # the number was closed and given out again
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
        """Keep one timer that fires no later than what is due; a timer that fires early arms itself again."""
        if isinstance(self._timer, asyncio.TimerHandle) and not self._timer.cancelled():
            if self._timer.when() <= self._due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due, self._timed_out)

    def _kick(self) -> None:
        if not self._kicked and not self._closed:
            self._kicked = True
            self._loop.call_soon(self._kicked_now)

    # --- the loop tells

    def _kicked_now(self) -> None:
        self._kicked = False
        if not self._closed:
            self._due = 0.0  # libcurl names its next time anew after every call for a timeout
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
        queued = 1
        while queued:
            queued, done, broken = self._multi.info_read()
            for easy in done:
                self.kept.left(easy)
                self._over(easy, 0, "")
            for easy, code, message in broken:
                self._over(easy, code, message)

    def _over(self, easy: Any, code: int, message: str) -> None:
        exchange = self._active.pop(easy, None)
        if exchange is not None:
            self._multi.remove_handle(easy)
            exchange.finished(code, message)
