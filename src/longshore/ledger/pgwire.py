"""Connections to PostgreSQL that end: bounded waits, a small pool, and an answer after a lost COMMIT.

Connections are made in the thread that needs one, so that a failure is the caller's own and nothing runs in the
background of a process that may fork.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import psycopg
from psycopg import errors as pg

from longshore.errors import Locked, NotPermitted, Unavailable

Connection = psycopg.Connection[Any]

CONNECT_S: Final = 10
SILENCE_S: Final = 60.0  # a server that says nothing for so long is taken for gone
_PARAMETERS: Final = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "longshore",
}
# The server's side of a half-open connection must not keep its locks.
_SESSION: Final = {
    "idle_in_transaction_session_timeout": "60s",
    "statement_timeout": "50s",
    "lock_timeout": "40s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "client_min_messages": "warning",
    "default_transaction_isolation": r"read\ committed",
    "timezone": "UTC",
    "jit": "off",
}
AGAIN: Final = (pg.SerializationFailure, pg.DeadlockDetected)
GONE: Final = (psycopg.OperationalError, psycopg.InterfaceError)


def connect(url: str, *, settings: dict[str, str] | None = None) -> Connection:
    """Connect in autocommit mode, with every wait bounded; a refusal that will not pass is our error at once."""
    chosen = (_SESSION | (settings or {})).items()
    options = " ".join(f"-c {name}={value}" for name, value in chosen)
    try:
        # What stands in the URL wins over our defaults, except for the session's safety settings.
        given = psycopg.conninfo.conninfo_to_dict(url)
        parameters: dict[str, Any] = {**_PARAMETERS, **given}
        parameters["options"] = " ".join(filter(None, (str(given.get("options") or ""), options)))
        return psycopg.connect(**parameters, autocommit=True)
    except (pg.InvalidPassword, pg.InvalidAuthorizationSpecification, pg.InsufficientPrivilege) as error:
        raise NotPermitted(f"PostgreSQL refuses the ledger's user: {first_line(error)}") from None
    except psycopg.OperationalError as error:
        if _is_final(error):
            raise NotPermitted(f"PostgreSQL refuses the connection: {first_line(error)}") from None
        raise


def _is_final(error: psycopg.OperationalError) -> bool:
    # While connecting libpq gives the server's words without its code.
    text = str(error)
    return any(word in text for word in ("password authentication failed", "no pg_hba.conf entry", 'role "')) and (
        "starting up" not in text
    )


def first_line(error: BaseException) -> str:
    """Give an error of the driver as one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def cut(connection: Connection) -> None:
    """End a connection from another thread: whoever waits for it gets an error now."""
    with contextlib.suppress(OSError, ValueError, psycopg.Error):
        descriptor = os.dup(connection.pgconn.socket)
        with socket.socket(fileno=descriptor) as end:
            end.shutdown(socket.SHUT_RDWR)


class Watchdog:
    """Cut connections whose server says nothing: TCP's own timers do not see a proxy that swallows everything."""

    def __init__(self, silence_s: float = SILENCE_S) -> None:
        self.silence_s = silence_s
        self._changed = threading.Condition()
        self._watched: dict[int, tuple[float, Connection]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextlib.contextmanager
    def over(self, connection: Connection) -> Iterator[None]:
        """Watch a connection as long as the block lasts; `touch` says that the server answered."""
        self.touch(connection)
        try:
            yield
        finally:
            with self._changed:
                self._watched.pop(id(connection), None)

    def touch(self, connection: Connection) -> None:
        """Start the connection's time again."""
        with self._changed:
            self._watched[id(connection)] = (time.monotonic() + self.silence_s, connection)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._watch, name="longshore-pg-watchdog", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                for key, (deadline, connection) in list(self._watched.items()):
                    if deadline <= now:
                        del self._watched[key]
                        cut(connection)
                self._changed.wait(min(1.0, self.silence_s / 4))


class Pool:
    """Idle connections, newest first; at most `size` in use. Broken ones are thrown away, not repaired."""

    def __init__(self, make: Callable[[], Connection], size: int) -> None:
        self._make = make
        self._free = threading.Semaphore(size)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False
        self._process = os.getpid()

    @contextlib.contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection; it comes back only if it is whole and idle."""
        with self._free:
            connection = self._take()
            try:
                yield connection
            finally:
                self._give(connection)

    def _take(self) -> Connection:
        with self._lock:
            if self._closed:
                raise Locked("the ledger is closed")
            if self._process != os.getpid():  # a fork must not speak on its parent's connections
                self._idle, self._process = [], os.getpid()
            if self._idle:
                return self._idle.pop()
        return self._make()

    def _give(self, connection: Connection) -> None:
        whole = not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            if whole and not self._closed:
                self._idle.append(connection)
                return
        with contextlib.suppress(psycopg.Error):
            connection.close()

    def forget(self) -> None:
        """Throw the idle ones away: after a loss they are probably broken too."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def close(self) -> None:
        """Close the idle ones; the lent ones are closed when they come back."""
        with self._lock:
            self._closed = True
        self.forget()


def outcome_of(make: Callable[[], Connection], xid: str, patience: Callable[[], bool]) -> bool:
    """Ask the server how a transaction ended whose COMMIT had no answer: True if it is committed.

    The server keeps this knowledge through its own crash. `patience` sleeps a little and says whether to ask again.
    """
    while True:
        try:
            with make() as connection:
                row = connection.execute("SELECT pg_xact_status(%s::xid8)", (xid,)).fetchone()
        except GONE as error:
            if not patience():
                raise Unavailable(
                    f"PostgreSQL went away while a transaction was committed: {first_line(error)}",
                    hint="the work is safe: it is either written or will be done again",
                ) from None
            continue
        if row is None or row[0] is None:
            raise Unavailable("PostgreSQL no longer knows how a transaction ended")
        if row[0] != "in progress":
            return bool(row[0] == "committed")
        if not patience():
            raise Unavailable("PostgreSQL still holds a transaction whose connection is gone")
