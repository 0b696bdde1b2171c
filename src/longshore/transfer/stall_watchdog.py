"""Detect stalled and slow transfers by a periodic check of all handles, instead of a timer per transfer."""

from __future__ import annotations

import asyncio
from typing import Final

import pycurl

from longshore.domain.settings import TransferSettings
from longshore.errors import Reasoned
from longshore.transfer.easy_handle import EasyHandle
from longshore.transfer.ftp import RemoteFile
from longshore.transfer.ftp_threads import FileThreads
from longshore.transfer.multi_loop import MultiLoop
from longshore.transfer.tcp_counters import shut_down, silent_s

PAGE_S: Final = 2.0  # time limit for the body of an error or a redirect, which is read only to reuse the connection


class Watchdog:
    """Stop transfers without progress. Idle when nothing runs."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, reactor: MultiLoop, files: FileThreads, settings: TransferSettings
    ) -> None:
        self._loop = loop
        self._reactor, self._files = reactor, files
        self._settings = settings
        limits = [settings.stall_s, settings.speed_window_s if settings.min_speed_bytes_s else 0]
        shortest = min((limit for limit in limits if limit > 0), default=0.0)
        self._every = min(1.0, max(0.02, shortest / 8)) if shortest else 1.0
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Start the periodic check, if it is not active."""
        if self._timer is None and self._every:
            self._timer = self._loop.call_later(self._every, self._look)

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        self._every = 0.0

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        exchanges = [*self._reactor.exchanges(), *self._files.exchanges()]
        still = False
        for exchange in exchanges:
            if not isinstance(exchange, EasyHandle):
                continue
            if self._has_enough(exchange, now):
                exchange.enough()
            elif error := self._complaint(exchange, now):
                if not isinstance(exchange, RemoteFile):
                    _drop_silent_connection(exchange, 0.8 * self._settings.stall_s)
                exchange.stop(error)
            still = still or exchange.moved[0] != now
        if still:
            self._reactor.nudge()
        if exchanges:
            self.wake()

    def _has_enough(self, line: EasyHandle, now: float) -> bool:
        """Return whether nothing more is needed: a response without a needed body, known for longer than `PAGE_S`,
        or an SFTP file that the server does not close."""
        if isinstance(line, RemoteFile):
            return line.is_whole(now)
        if not line.is_answered():
            return False
        line.answered_at = line.answered_at or now
        return now - line.answered_at >= PAGE_S

    def _complaint(self, line: EasyHandle, now: float) -> Reasoned | None:
        """Return the error for a stalled or slow transfer. A transfer that the sink has paused is never too slow."""
        settings = self._settings
        if isinstance(line, RemoteFile) and (late := line.late_reply(now)) is not None:
            return late
        progress = line.progress()
        since, seen = line.moved
        if progress > seen or line.held:
            line.moved = (now, max(progress, seen))
        elif settings.stall_s and now - since >= settings.stall_s:
            return Reasoned("too_slow", f"{line.target.host}: no byte of the body for {settings.stall_s:g} s")
        if not settings.min_speed_bytes_s or line.rate:
            return None
        began, had = line.pace
        if not began or line.held:
            line.pace = (now, line.received)
        elif now - began >= settings.speed_window_s:
            if line.received - had < settings.min_speed_bytes_s * (now - began):
                limit = settings.min_speed_bytes_s
                return Reasoned("too_slow", f"{line.target.host}: slower than {limit:g} bytes/s")
            line.pace = (now, line.received)
        return None


def _drop_silent_connection(line: EasyHandle, limit_s: float) -> None:
    """End the connection if nothing arrives on it at all: libcurl would use it for the next HTTP/2 request, too.

    Without this, every attempt goes to the one connection that a lost NAT entry or a hung backend has silenced, and a
    healthy host is given up.
    """
    descriptor = line.easy.getinfo(pycurl.ACTIVESOCKET)
    if descriptor >= 0 and (silent_s(descriptor) or 0.0) >= limit_s:
        shut_down(descriptor)
