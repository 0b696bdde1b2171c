"""Copies of a SQLite ledger for backups: taken while writers continue, checked, and read without opening them for writing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw

from longshore.domain.model import Scope
from longshore.errors import Damaged, DiskFull, LongshoreError, Unavailable
from longshore.ledger.backends.sqlite.connection import is_readonly
from longshore.ledger.backends.sqlite.readonly import open_readonly
from longshore.ledger.migrate import check_version, current_version, drift_sqlite, version_of
from longshore.ledger.statements import statements

_LEAST_ROOM: Final = 1 << 16  # bytes: with less, SQLite cannot even write a page and its journal


def take(ledger: Path, target: Path) -> None:
    """Copy a snapshot of the ledger while writers continue."""
    target.unlink(missing_ok=True)
    os.close(
        os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    )  # its journal gets the same mode
    if is_readonly(ledger):
        source = open_readonly(ledger)
    else:
        source = apsw.Connection(str(ledger), flags=apsw.SQLITE_OPEN_READONLY)
        source.set_busy_timeout(60_000)
    copy = apsw.Connection(str(target))
    try:
        with copy.backup("main", source, "main") as work:
            while not work.done:
                work.step(4_096)
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, complete in itself
    except apsw.Error as error:
        raise _not_copied(error, ledger, target) from error
    finally:
        copy.close()
        source.close()


def _not_copied(error: apsw.Error, ledger: Path, target: Path) -> LongshoreError:
    """Return the error of a failed snapshot: a target that cannot be written is not damage."""
    code = getattr(error, "result", 0) & 0xFF
    room = os.statvfs(target.parent)
    full = room.f_bavail * room.f_frsize < _LEAST_ROOM or not room.f_favail
    if code == apsw.SQLITE_FULL or (full and code not in (apsw.SQLITE_CORRUPT, apsw.SQLITE_NOTADB)):
        return DiskFull(
            f"the backup does not fit: no space left at {target.parent}", hint="make room, or name another disk"
        )
    if code in (apsw.SQLITE_CORRUPT, apsw.SQLITE_NOTADB):
        return Damaged(f"the ledger {ledger} is damaged and cannot be copied ({type(error).__name__})")
    return Unavailable(f"the ledger cannot be copied to {target.parent}: {error} ({type(error).__name__})")


def check(ledger: Path) -> None:
    """Raise `Damaged` unless a copy is an intact database."""
    connection = apsw.Connection(str(ledger), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        if (found := connection.execute("PRAGMA quick_check(1)").get) != "ok":
            raise Damaged(f"the ledger of this backup is damaged: {found}")
    except apsw.Error as error:
        raise Damaged(f"the ledger of this backup is damaged: {error}") from error
    finally:
        connection.close()


def drift(ledger: Path) -> list[str]:
    """Return how the schema of a copy differs from what the program makes: a foreign trigger would run in the new depot."""
    plain = not is_readonly(ledger)
    connection = apsw.Connection(str(ledger), flags=apsw.SQLITE_OPEN_READONLY) if plain else open_readonly(ledger)
    try:
        if (have := version_of(connection)) > current_version("sqlite"):
            check_version(have, "sqlite", str(ledger))
        return drift_sqlite(connection)
    finally:
        connection.close()


def revoke_tokens(ledger: Path, now: int) -> int:
    """Revoke every token of a copy; return how many were valid."""
    connection = apsw.Connection(str(ledger), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute(_sql("snapshot_revoke"), {"now": now})
        return connection.changes()
    finally:
        connection.close()


def ledger_id(ledger: Path) -> str | None:
    """Return the id of the ledger that was copied."""
    connection = apsw.Connection(str(ledger), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(_sql("meta_value"), {"key": "ledger_id"}).get  # type: ignore[no-any-return]
    finally:
        connection.close()


def blobs(ledger: Path) -> Iterator[tuple[Scope, str, int, str]]:
    """Yield scope, hash, size and pointer of every blob that a copy names."""
    connection = apsw.Connection(str(ledger), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for tenant, project, sha256, size, pointer in connection.execute(_sql("snapshot_blobs")):
            if pointer.startswith("/") or ".." in pointer.split("/"):
                raise Damaged("a pointer of this ledger leads out of the store")
            yield Scope(tenant, project), sha256, size, pointer
    finally:
        connection.close()


def _sql(name: str) -> str:
    return statements("sqlite")[name].text
