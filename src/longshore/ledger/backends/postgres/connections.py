"""Connections to PostgreSQL that end: bounded waits, a small pool, and certainty after a lost COMMIT.

Connections are made in the thread that needs one, so that a failure is the caller's own and nothing runs in the
background of a process that may fork.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import psycopg
from psycopg import errors as pg

from longshore.errors import Locked, NotPermitted, Unavailable
from longshore.ledger.backends.postgres.silence import Silence

Connection = psycopg.Connection[Any]

CONNECT_S: Final = 10
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
    "idle_in_transaction_session_timeout": "4s",  # a machine that stands still holds locks that every claim needs
    "tcp_user_timeout": "5000",
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
# A pipeline that ends with an error reports what follows from it, too; the error itself is raised.
logging.getLogger("psycopg").addFilter(lambda record: not str(record.msg).startswith("error ignored"))


class InDoubt(Exception):
    """The answer to a COMMIT is lost."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection whose waits for the server end, also those while it is made."""

    silence: Silence

    @classmethod
    def _connect_gen(cls, *args: Any, **kw: Any) -> Any:
        return cls.silence.bounded(super()._connect_gen(*args, **kw), lambda: True, lambda: None)

    def wait(self, gen: Any, *args: Any, **kw: Any) -> Any:
        """Wait for the server's answer, within the limit. Notifications may come at any time: they have none."""
        return super().wait(self.silence.bounded(gen, self._asks, lambda: cut(self)), *args, **kw)

    def _asks(self) -> bool:
        return self.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE


def connect(url: str, *, settings: dict[str, str] | None = None, silence: Silence | None = None) -> Connection:
    """Connect in autocommit mode, with every wait bounded; a refusal that will not pass is our error at once."""

    class Bounded(BoundedConnection):
        pass

    Bounded.silence = silence or Silence()
    chosen = (_SESSION | (settings or {})).items()
    options = " ".join(f"-c {name}={value}" for name, value in chosen)
    try:
        # What stands in the URL wins over our defaults, except for the session's safety settings.
        given = psycopg.conninfo.conninfo_to_dict(url)
        parameters: dict[str, Any] = {**_PARAMETERS, **given}
        parameters["options"] = " ".join(filter(None, (str(given.get("options") or ""), options)))
        return Bounded.connect(**parameters, autocommit=True)
    except (pg.InvalidPassword, pg.InvalidAuthorizationSpecification, pg.InsufficientPrivilege) as error:
        raise NotPermitted(f"PostgreSQL refuses the ledger's user: {first_line(error)}") from None
    except psycopg.OperationalError as error:
        if _is_final(error):
            raise NotPermitted(f"PostgreSQL refuses the connection: {first_line(error)}") from None
        raise


def _is_final(error: psycopg.OperationalError) -> bool:
    # While connecting libpq gives the server's words without its code.
    text = str(error)
    passing = any(word in text for word in ("starting up", "too many connections"))
    return not passing and any(
        word in text
        for word in ("password authentication failed", "no pg_hba.conf entry", 'role "', "permission denied")
    )


def first_line(error: BaseException) -> str:
    """Return an error of the driver as one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def cut(connection: Connection) -> None:
    """Shut down a connection's socket from another thread, so that a blocked call on it fails at once."""
    with contextlib.suppress(OSError, ValueError, psycopg.Error):
        descriptor = os.dup(connection.pgconn.socket)
        with socket.socket(fileno=descriptor) as end:
            end.shutdown(socket.SHUT_RDWR)


class Pool:
    """Idle connections, newest first; at most `size` in use. Broken ones are thrown away, not repaired."""

    def __init__(self, make: Callable[[], Connection], size: int) -> None:
        self._make = make
        self._free = threading.Semaphore(size)
        self._lock = threading.Lock()
        self._idle: list[Session] = []
        self._closed = False
        self._process = os.getpid()

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        """Lend a connection; it comes back only if it is whole and idle."""
        with self._free:
            session = self._take()
            try:
                yield session
            finally:
                self._give(session)

    def _take(self) -> Session:
        with self._lock:
            if self._closed:
                raise Locked("the ledger is closed")
            if self._process != os.getpid():  # a fork must not speak on its parent's connections
                self._idle, self._process = [], os.getpid()
            if self._idle:
                return self._idle.pop()
        return Session(self._make())

    def _give(self, session: Session) -> None:
        connection = session.connection
        whole = not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            if whole and not self._closed:
                self._idle.append(session)
                return
        with contextlib.suppress(psycopg.Error):
            connection.close()

    def forget(self) -> None:
        """Discard the idle connections: after a connection loss they are probably broken, too."""
        with self._lock:
            idle, self._idle = self._idle, []
        for session in idle:
            with contextlib.suppress(psycopg.Error):
                session.connection.close()

    def close(self) -> None:
        """Close the idle ones; the lent ones are closed when they come back."""
        with self._lock:
            self._closed = True
        self.forget()


class Session:
    """The transactions of one connection, numbered; the number goes into the database with the transaction itself.

    A COMMIT whose answer is lost is in doubt: the server may have it, may still be working on it, or may have been
    replaced by a standby that never saw it. A transaction id cannot tell, because a server that crashed or was promoted
    hands out the same ids again. So every transaction that writes leaves its number in the row `commits` of its
    connection, in the same round trip as the COMMIT. Afterwards the number is there exactly if the transaction is.

    The question is asked by closing that row. First, this waits for the old transaction if the server has it under way
    (it holds the row). Second, a COMMIT that the server reads only afterwards fails, because the row is closed: the answer
    cannot change any more. Third, the question is committed like any other write, so that on a server with a synchronous
    standby the answer "committed" is not given before the standby has it, too.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.name = uuid.uuid4().hex
        self._number = 0
        self._doubtful = False
        connection.add_notice_handler(self._noticed)

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        # A COMMIT that succeeds with a warning is committed here, but perhaps not on the standby that it waited for.
        self._doubtful = self._doubtful or notice.severity_nonlocalized == "WARNING"

    @contextlib.contextmanager
    def transaction(self, begin: str, commit: Callable[[], None] | None) -> Iterator[psycopg.Pipeline]:
        """Run the block in a transaction in pipeline mode; `commit` is called before the COMMIT, None: it only reads.

        Raise InDoubt if the COMMIT may have taken place. Leaving the pipeline waits for all that was sent.
        """
        sent = None
        try:
            with self.connection.pipeline() as pipeline:
                self.connection.execute(begin, prepare=False)
                yield pipeline
                if commit is not None:
                    commit()
                    sent = self._send_number()
                ended = self.connection.execute("COMMIT", prepare=False)
            if ended.statusmessage != "COMMIT":
                raise Unavailable(f"PostgreSQL answered COMMIT with {ended.statusmessage}")
        except psycopg.Error as error:
            if sent is None or not is_lost(error):
                roll_back(self.connection)
                raise
            raise InDoubt from error
        except BaseException:
            roll_back(self.connection)
            raise
        if sent is not None and self._doubtful:
            raise InDoubt

    def _send_number(self) -> int:
        self._number += 1
        self._doubtful = False
        self.connection.execute(_NUMBERED.format(self.name, self._number), prepare=False)
        return self._number

    def is_committed(self, make: Callable[[], Connection], patience: Callable[[str], bool]) -> bool:
        """Find out how a transaction in doubt ended. `patience` sleeps a little and says whether to ask again."""
        while True:
            why = "the standby did not confirm it"
            try:
                with make() as connection:
                    asking = Session(connection)
                    row = connection.execute(_LAST_NUMBER, (self.name,)).fetchone()
                if not asking._doubtful:
                    return row is not None and row[0] == self._number
            except psycopg.Error as error:
                if not is_lost(error) and not isinstance(error, (pg.LockNotAvailable, pg.QueryCanceled, *AGAIN)):
                    raise
                why = first_line(error)
            if not patience(why):
                raise Unavailable(
                    f"PostgreSQL went away while a transaction was committed: {why}",
                    hint="the work is safe: it is either written or will be done again",
                )


_NUMBERED: Final = (
    "INSERT INTO commits AS c (session, number) SELECT '{}', {} WHERE pg_current_xact_id_if_assigned() IS NOT NULL"
    " ON CONFLICT (session) DO UPDATE SET number = excluded.number / (1 - c.closed), at = clock_timestamp()"
)
_LAST_NUMBER: Final = (
    "INSERT INTO commits AS c (session, number, closed) VALUES (%s, -1, 1)"
    " ON CONFLICT (session) DO UPDATE SET closed = 1 RETURNING number"
)
_GONE_STATES: Final = ("08", "57P", "25006", "25P03")  # connection, shutdown and crash, a standby, an idle transaction


def roll_back(connection: Connection) -> None:
    """Roll back, or close the connection, which does the same."""
    try:
        connection.execute("ROLLBACK", prepare=False)
    except psycopg.Error:
        connection.close()


def is_lost(error: psycopg.Error) -> bool:
    """Return whether the connection is gone, as opposed to the server refusing a statement."""
    if error.sqlstate is None:
        return isinstance(error, GONE)
    return error.sqlstate.startswith(_GONE_STATES)
