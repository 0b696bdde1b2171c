"""Run FTP and SFTP transfers, each in a thread of its own, because libcurl waits inside its calls for such servers.

libcurl's multi interface does not block for HTTP. For FTP it waits inside one call for the reply after the data and
for the reply to QUIT, for SFTP until the server has closed the file and the session. Also the removal of a handle
waits for these. On the event loop, one silent server would stop every transfer, the signals and the heartbeat.

So the event loop never calls libcurl for these handles. A thread calls `perform`, and libcurl's callbacks run in it.
Only the body crosses over: the thread hands pieces to the loop and waits until the sink has taken them, so sinks and
heads are used on the loop only, and a sink that pauses stops the thread. libcurl delivers 16 KiB at a time, and a
switch of threads costs more than that is worth, so the thread collects what libcurl reads without waiting. When a transfer is dropped, the loop
shuts its sockets down and does not wait: every blocking call of libcurl then returns at once, and the thread closes
the handle. A transfer blocks nothing but itself, so it may wait for a reply as long as the settings allow.

Rejected: one thread with a multi handle for all (one server would still stop all other FTP and SFTP transfers), and
shorter waits on the loop (a server that needs five seconds for its final reply would never complete).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

import pycurl

from longshore.transfer.kept_connections import KeptConnections
from longshore.transfer.multi_loop import Exchange

_END_S: Final = 2.0  # `close` waits this long for threads; their sockets are shut down, so they normally need far less
_POLL_S: Final = 0.005
_PIECE: Final = 262_144  # bytes that are handed over together


class OpenSockets:
    """The sockets that libcurl has open for one handle. Used by the handle's thread and by the event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a descriptor must not be closed, and reused, while it is shut down
        self._descriptors: set[int] = set()
        self.shut = False

    def watch(self, easy: Any, on_close: Callable[[], None]) -> None:
        """Follow the handle's sockets; call `on_close` in its thread for each socket that it closes."""

        def closed(descriptor: int) -> int:
            with self._lock:
                self._descriptors.discard(descriptor)
                os.close(descriptor)
            on_close()
            return 0

        easy.setopt(pycurl.SOCKOPTFUNCTION, self._opened)
        easy.setopt(pycurl.CLOSESOCKETFUNCTION, closed)

    def shut_down(self) -> None:
        """End every wait for the peer, now and later: sockets that libcurl opens from here on are refused."""
        with self._lock:
            self.shut = True
            for descriptor in self._descriptors:
                one = socket.socket(fileno=descriptor)
                try:
                    with contextlib.suppress(OSError):  # not connected yet
                        one.shutdown(socket.SHUT_RDWR)
                finally:
                    one.detach()

    def _opened(self, descriptor: int, _purpose: int) -> int:
        with self._lock:
            self._descriptors.add(descriptor)
            return int(pycurl.SOCKOPT_ERROR if self.shut else pycurl.SOCKOPT_OK)


class FileExchange(Exchange, Protocol):
    """An easy handle that runs in a thread."""

    sockets: OpenSockets
    held: bool
    keeps_connection: bool
    flush: Callable[[], bool]  # set by the thread; libcurl's other callbacks call it

    def receive(self, data: bytes) -> int | None:
        """Take bytes of the body, on the event loop; the result is that of libcurl's write callback."""

    def note_result(self) -> None:
        """Read from the handle what is needed later; called in the thread after the transfer."""


class FileThread:
    """One transfer in a thread. `ended` is called on the loop with libcurl's result, unless `drop` came first."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, exchange: FileExchange, ended: Callable[[FileExchange, int, str], None]
    ) -> None:
        self._loop, self._exchange, self._ended = loop, exchange, ended
        self._taken = threading.Event()  # the piece was taken, and the sink has not paused; or the transfer is dropped
        self._dropped = False
        self._refused = False  # the sink has failed
        self._pieces: list[bytes] = []
        self._size = 0
        exchange.flush = self._flush
        exchange.easy.setopt(pycurl.WRITEFUNCTION, self._collect)
        self.thread = threading.Thread(target=self._run, name="longshore-file", daemon=True)

    # --- on the event loop

    def drop(self) -> None:
        """End the transfer without waiting for the thread."""
        self._dropped = True
        self._exchange.sockets.shut_down()
        self._taken.set()

    def resume(self) -> None:
        """Let the thread continue after the sink has paused it."""
        self._taken.set()

    def _deliver(self, data: bytes) -> None:
        if self._dropped:
            return
        self._refused = self._exchange.receive(data) is not None
        if not self._exchange.held:
            self._taken.set()

    def _finish(self, code: int, message: str) -> None:
        if not self._dropped:
            self._ended(self._exchange, code, message)

    # --- in the thread

    def _run(self) -> None:
        easy, code, message = self._exchange.easy, 0, ""
        try:
            easy.perform()
        except pycurl.error as error:
            code, message = error.args
        self._flush()
        with contextlib.suppress(pycurl.error):  # the handle was dropped and closed meanwhile
            self._exchange.note_result()
        keep = self._exchange.keeps_connection and not code and not self._dropped
        self._post(self._finish, code, message)
        if not keep:
            easy.close()

    def _collect(self, data: bytes) -> int | None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size < _PIECE or self._flush():
            return None
        return 0  # not the number of bytes: libcurl ends the transfer

    def _flush(self) -> bool:
        """Hand the collected bytes over and wait until they are taken; return False if the transfer is to end.

        libcurl's progress callback calls this before each wait for the network, so no byte is held back.
        """
        if self._pieces and not self._dropped:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
            self._taken.clear()
            if not self._dropped and self._post(self._deliver, data):
                self._taken.wait()
        return not self._dropped and not self._refused

    def _post(self, call: Callable[..., None], *values: object) -> bool:
        """Run a call on the event loop; return False if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(call, *values)
        except RuntimeError:
            return False
        return True


class FileThreads:
    """Runs exchanges in threads, with the methods of `MultiLoop`. Its methods are called on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._active: dict[FileExchange, FileThread] = {}
        self._threads: set[threading.Thread] = set()  # also those that are ending
        self.kept = KeptConnections()  # always empty: it is about HTTP/1

    def exchanges(self) -> list[FileExchange]:
        """Return the running exchanges."""
        return list(self._active)

    def start(self, exchange: FileExchange) -> None:
        """Start an exchange; raise `RuntimeError` if the system allows no more threads."""
        file = FileThread(self._loop, exchange, self._over)
        self._begin(file.thread)
        self._active[exchange] = file

    def drop(self, exchange: FileExchange) -> None:
        """End an exchange at once; `finished` is not called."""
        if (file := self._active.pop(exchange, None)) is not None:
            file.drop()

    def resume(self, exchange: FileExchange) -> None:
        """Resume a paused exchange."""
        if (file := self._active.get(exchange)) is not None:
            file.resume()

    def discard(self, exchange: FileExchange) -> None:
        """Close the handle of an exchange that is over, with its connection."""
        exchange.sockets.shut_down()
        with contextlib.suppress(RuntimeError):  # without a thread, the handle is closed when it is garbage
            self._begin(threading.Thread(target=_close, args=(exchange.easy,), name="longshore-close", daemon=True))

    async def close(self) -> None:
        """Drop all exchanges, and wait a short time for their threads."""
        for exchange in self.exchanges():
            self.drop(exchange)
        limit = self._loop.time() + _END_S
        while any(thread.is_alive() for thread in self._threads) and self._loop.time() < limit:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    def _begin(self, thread: threading.Thread) -> None:
        thread.start()
        self._threads = {one for one in self._threads if one.is_alive()} | {thread}

    def _over(self, exchange: FileExchange, code: int, message: str) -> None:
        if self._active.pop(exchange, None) is not None:
            exchange.finished(code, message)


def _close(easy: Any) -> None:
    with contextlib.suppress(pycurl.error):  # its own thread is still in libcurl, and closes it
        easy.close()
