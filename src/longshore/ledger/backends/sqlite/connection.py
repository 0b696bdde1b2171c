"""Open connections to a ledger file, and translate SQLite's errors.

Pragmas are set outside transactions and read back. Separate from the backend: readers need no threads.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import apsw

from longshore.domain.policy.audit_chain import line_hash
from longshore.errors import Conflict, Damaged, InvalidTransition, LeaseLost, LongshoreError, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

OLDEST: Final = (3, 51, 3)  # older ones can corrupt a WAL database that several processes write
CACHE_KIB: Final = 65_536
CHECKPOINT_PAGES: Final = 8_192
BULK_PAGES: Final = 32_768  # for bulk writes: a rarer checkpoint copies a page that changes often only once
PRAGMAS: Final[dict[str, int | str]] = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
SWITCH_S: Final = 60.0
HELD: Final = "a process stands still in a transaction on it: let it go on or end it, then repeat"
LOG_BYTES: Final = 65_536  # below this SQLite cannot even make the files that a reader needs


def is_readonly(path: str | Path) -> bool:
    """Return whether an existing ledger can be read here and not be written."""
    if not os.path.isfile(path) or not os.access(path, os.R_OK):
        return False
    directory = os.path.dirname(path) or "."
    return not os.access(directory, os.W_OK) or (_is_full(directory) and not has_log(path))


def _is_full(directory: str) -> bool:
    room = os.statvfs(directory)
    return (room.f_bfree if os.geteuid() == 0 else room.f_bavail) * room.f_frsize < LOG_BYTES


def has_log(path: str | Path) -> bool:
    """Return whether a ledger has a WAL file that is not empty."""
    try:
        return os.stat(f"{path}-wal").st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False


def connect(path: str | Path, *, readonly: bool = False, bulk: bool = False) -> apsw.Connection:
    """Open one connection with everything set and read back."""
    if tuple(int(part) for part in apsw.sqlite_lib_version().split(".")[:3]) < OLDEST:
        raise Unavailable(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a ledger",
            hint=f"install an apsw with SQLite {'.'.join(map(str, OLDEST))} or newer",
        )
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=300)
    except apsw.Error as error:
        raise translated(error, path) from error
    try:
        connection.set_busy_timeout(60_000)
        add_functions(connection)
        # Plans never depend on bound values: otherwise every bind would prepare the statement again (partial indexes).
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        for name, value in PRAGMAS.items():
            _set(connection, name, value)
            if (have := connection.pragma(name)) != value:
                raise Unavailable(f"{path}: {name} is {have}, and must be {value}")
        connection.pragma("cache_size", -CACHE_KIB)
        connection.pragma("temp_store", 2)
        connection.wal_autocheckpoint(BULK_PAGES if bulk else CHECKPOINT_PAGES)
        if readonly:
            connection.pragma("query_only", 1)
    except apsw.Error as error:
        connection.close()
        raise translated(error, path) from error
    except LongshoreError:
        connection.close()
        raise
    return connection


def add_functions(connection: apsw.Connection) -> None:
    """Give a connection the functions that statements and migrations use."""
    connection.create_scalar_function("audit_hash", line_hash, deterministic=True)  # type: ignore[arg-type]


def _set(connection: apsw.Connection, name: str, value: int | str) -> None:
    """Set a pragma. Two processes that switch a new ledger to WAL at once do not wait for each other by themselves."""
    end = time.monotonic() + SWITCH_S
    while True:
        try:
            connection.execute(f"PRAGMA {name} = {value}")
            return
        except apsw.BusyError:
            if time.monotonic() > end:
                raise
            time.sleep(0.005)


def translated(error: BaseException, path: str | Path | None = None) -> LongshoreError:
    """Return the LongshoreError for an SQLite error."""
    where = f"{path}: " if path else ""
    text = str(error)
    if isinstance(error, LongshoreError):
        return error
    if "longshore:" in text:
        return _refused(text.partition("longshore:")[2])
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        return Damaged(f"{where}the ledger is damaged: {text}", hint="restore it from a backup; nothing was repaired")
    if isinstance(error, apsw.ConstraintError):
        return Conflict(f"{where}the ledger refuses this: {text}")
    return Unavailable(f"{where}the ledger cannot be used now: {text}", hint=_what_to_do(error))


def _what_to_do(error: BaseException) -> str | None:
    """A ledger needs room and the right to write even to be read: its log lies beside it."""
    if isinstance(error, apsw.FullError):
        return "the disk is full: make room, then repeat"
    if isinstance(error, apsw.BusyError):
        return HELD
    if isinstance(error, apsw.IOError):
        return "is the disk full? make room; otherwise check the disk and the kernel's log"
    if isinstance(error, (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError)):
        return "its directory must be writable for you: check owner and mount, or name another place with --depot"
    return None


def _refused(text: str) -> LongshoreError:
    kind, _, message = text.partition(": ")
    if kind in ("terminal", "invalid_transition", "result"):
        return InvalidTransition(message)
    return LeaseLost(message) if kind in ("lease", "epoch") else Conflict(message)


def wall_clock() -> int:
    """Return the time of this machine, which is the time of a ledger on it."""
    return time.time_ns() // 1000


def journal_mode(path: Path) -> str:
    """Return the journal mode of a ledger file."""
    connection = connect(path, readonly=True)
    try:
        return str(connection.execute("PRAGMA journal_mode").get)
    finally:
        connection.close()
