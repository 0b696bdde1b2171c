"""Read a ledger file that cannot be written: on a read-only or full disk, in a snapshot or another user's directory.

SQLite's log lies beside the database. What is read-only may have three forms. With a log and its index, SQLite reads both
without writing. Without a log the file alone is the ledger, opened as immutable; a shared lock keeps writers (who may
reach the same file by another mount) from changing it meanwhile. A log without its index cannot be read in place.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import apsw

from longshore.domain.identity.logins import NO_LOGINS
from longshore.domain.model import Micros
from longshore.domain.policy.tenant_budgets import NO_BUDGET
from longshore.errors import LongshoreError, NotPermitted, Unavailable
from longshore.ledger.backends.sqlite.backend import SqliteTx, lock_path
from longshore.ledger.backends.sqlite.connection import has_log, translated, wall_clock
from longshore.ledger.statements import Dialect
from longshore.ledger.transaction import Tx

T = TypeVar("T")


class ReadOnlySqlite:
    """A ledger file, for reading only."""

    dialect: Dialect = "sqlite"
    commit_seconds: Callable[[float], None] | None = None

    def __init__(self, path: Path, clock: Callable[[], Micros] | None = None) -> None:
        self.path = path
        self._clock = clock or wall_clock
        self.budget, self.logins = NO_BUDGET, NO_LOGINS
        self.hooks: dict[str, Any] = {}
        self._one_at_a_time = threading.Lock()
        self._locked = _shared_lock(path)
        try:
            self._connection = open_readonly(path)
        except BaseException:
            self._unlock()
            raise

    def now(self) -> Micros:
        """Return the ledger's time."""
        return self._clock()

    def queue_length(self) -> int:
        """Nothing waits: nothing is written."""
        return 0

    def give_up(self) -> None:
        """Do nothing: nothing waits."""

    def silent_s(self) -> float:
        """Return 0: nothing waits."""
        return 0.0

    def submit(self, call: Callable[[Tx], T]) -> Future[T]:
        """Raise an error that says why the ledger is read-only."""
        raise refusal(self.path)

    def read(self, call: Callable[[Tx], T]) -> T:
        """Run a verb on a snapshot, in the caller's thread."""
        with self._one_at_a_time:
            try:
                self._connection.execute("BEGIN")
                try:
                    return call(SqliteTx(self._connection, self.now(), self.budget, self.logins))
                finally:
                    self._connection.execute("COMMIT")
            except apsw.Error as error:
                raise translated(error, self.path) from error

    def close(self) -> None:
        """Close the connection and release the lock."""
        self._connection.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._locked is not None:
            os.close(self._locked)
            self._locked = None


def open_readonly(path: Path) -> apsw.Connection:
    """Open a connection that writes nothing, not even beside the file."""
    if has_log(path) and not Path(f"{path}-shm").exists():
        raise Unavailable(
            f"{path} has a log that cannot be read where nothing can be written",
            hint="copy the depot and read the copy",
        )
    immutable = "" if has_log(path) else "&immutable=1"
    try:
        connection = apsw.Connection(
            f"file:{quote(str(path))}?mode=ro{immutable}",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            statementcachesize=300,
        )
        connection.set_busy_timeout(60_000)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.pragma("query_only", 1)
        connection.pragma("temp_store", 2)
    except apsw.Error as error:
        raise translated(error, path) from error
    return connection


def refusal(path: Path) -> LongshoreError:
    """Return why nothing can be written."""
    if os.statvfs(path.parent).f_flag & os.ST_RDONLY:
        return Unavailable(
            f"{path.parent} is on a read-only disk: it can be looked at, not changed",
            hint="mount it for writing, or name another place with --depot",
        )
    if os.access(path.parent, os.W_OK):
        return Unavailable(f"the disk of {path.parent} is full", hint="make room, then repeat; nothing is lost")
    return NotPermitted(
        f"{path.parent} may not be written by you: it can be looked at, not changed", hint="check who owns it"
    )


def _shared_lock(path: Path) -> int | None:
    """Take a shared lock that blocks writers. Without a lock file, no process has ever written to this ledger."""
    try:
        descriptor = os.open(lock_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    if not has_log(path):  # with a log, SQLite's own locks do it
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor
