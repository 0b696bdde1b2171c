"""Wake up waiters by LISTEN/NOTIFY, on a connection that is health-checked and reopened when it is lost.

A notification is only a hint. Waiters also poll, so a lost notification causes a delay, never lost work.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Final

import psycopg

from longshore.errors import LongshoreError
from longshore.ledger.backends.postgres.connections import Connection, cut

CHANNEL: Final = "longshore_jobs"
_CHECK_S: Final = 15.0
_SILENCE_S: Final = 5.0


class Listener:
    """One listening thread for all waiters of a process."""

    def __init__(self, make: Callable[[], Connection]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._wakes: dict[int, Callable[[], None]] = {}
        self._next = 0
        self._closed = threading.Event()
        self._connection: Connection | None = None
        self.listening = threading.Event()
        self._thread = threading.Thread(target=self._work, name="longshore-pg-listener", daemon=True)
        self._thread.start()

    def add(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at every notification, and after every gap in which one may have been lost."""
        with self._lock:
            self._next += 1
            key = self._next
            self._wakes[key] = wake
        return lambda: self._remove(key)

    def _remove(self, key: int) -> None:
        with self._lock:
            self._wakes.pop(key, None)

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        connection = self._connection
        if connection is not None:
            cut(connection)
        self._thread.join()

    def _work(self) -> None:
        pause = 0.05
        while not self._closed.is_set():
            try:
                with contextlib.closing(self._make()) as connection:
                    self._connection = connection
                    connection.execute(f"LISTEN {CHANNEL}")
                    self.listening.set()
                    self._wake()  # notifications may have been missed while disconnected
                    pause = 0.05
                    self._listen(connection)
            except (psycopg.Error, LongshoreError, OSError):
                self._closed.wait(pause)
                pause = min(pause * 2, 5.0)
            finally:
                self._connection = None
                self.listening.clear()

    def _listen(self, connection: Connection) -> None:
        while not self._closed.is_set():
            heard = False
            for _ in connection.notifies(timeout=_CHECK_S, stop_after=1):
                heard = True
            if heard:
                self._wake()
            else:
                self._check(connection)

    def _check(self, connection: Connection) -> None:
        """Query the server, because a half-open connection raises no error by itself."""
        timer = threading.Timer(_SILENCE_S, cut, (connection,))
        timer.daemon = True
        timer.start()
        try:
            connection.execute("SELECT 1")
        finally:
            timer.cancel()

    def _wake(self) -> None:
        with self._lock:
            wakes = list(self._wakes.values())
        for wake in wakes:
            with contextlib.suppress(Exception):
                wake()
