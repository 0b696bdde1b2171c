"""Migrations: numbered .sql files, each applied in one transaction with its version row; nothing is migrated silently.

A new SQLite ledger is built under another name and renamed when it is whole and durable, so that a crash while it is
made leaves nothing that a later open could stumble over.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import apsw

from longshore import failpoints
from longshore.errors import Damaged, NoDepot, SchemaMismatch, Unavailable
from longshore.ledger.backends.sqlite.backend import lock_path
from longshore.ledger.backends.sqlite.connection import add_functions, connect, translated, wall_clock
from longshore.ledger.backends.sqlite.readonly import open_readonly
from longshore.ledger.ids import new_id
from longshore.ledger.statements import Dialect, statements

_NAME: Final = re.compile(r"(\d{4})_(\w+)\.sql\Z")
_SPACE: Final = re.compile(r"\s+")
FOLDER: Final = Path(__file__).parent / "migrations"

failpoints.declare("schema.create", "schema.rename", "schema.migrate")


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step."""

    version: int
    name: str
    text: str
    checksum: str


@cache
def migrations(dialect: Dialect, folder: Path = FOLDER) -> tuple[Migration, ...]:
    """Read the steps of a dialect, in order and without gaps."""
    steps = []
    for path in sorted((folder / dialect).glob("*.sql")):
        if match := _NAME.match(path.name):
            text = path.read_text(encoding="utf-8")
            steps.append(Migration(int(match[1]), match[2], text, hashlib.sha256(text.encode()).hexdigest()))
    if [step.version for step in steps] != list(range(1, len(steps) + 1)):
        raise Unavailable(f"the migrations in {folder / dialect} have a gap")
    return tuple(steps)


def current_version(dialect: Dialect) -> int:
    """Return the version that this program needs."""
    return len(migrations(dialect))


def check_version(have: int, dialect: Dialect, where: str) -> None:
    """Refuse a ledger that is newer or older than the program."""
    need = current_version(dialect)
    if have > need:
        raise SchemaMismatch(
            f"{where} has schema {have}; this program knows {need}", hint="use the newer program that made it"
        )
    if have < need:
        raise SchemaMismatch(
            f"{where} has schema {have}; this program needs {need}", hint="make a backup, then `longshore migrate`"
        )


def create_sqlite(path: Path) -> None:
    """Make a new ledger file with the current schema, whole or not at all."""
    for missing in reversed([parent for parent in path.parents if not parent.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)  # private, whatever the umask
    with _locked(path):
        if path.exists():
            return
        unborn = path.with_name(path.name + ".new")
        for debris in (unborn, Path(f"{unborn}-journal"), Path(f"{unborn}-wal"), Path(f"{unborn}-shm")):
            debris.unlink(missing_ok=True)
        os.close(os.open(unborn, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))  # not by SQLite: world-readable
        try:
            connection = apsw.Connection(str(unborn))
            try:
                connection.execute("PRAGMA journal_mode = delete; PRAGMA synchronous = 2")
                apply(connection)
                connection.execute(_sql("meta_put"), {"key": "ledger_id", "value": new_id(wall_clock())})
            finally:
                connection.close()
        except apsw.Error as error:
            raise translated(error, path) from error
        failpoints.hit("schema.create")
        _sync(unborn)
        failpoints.hit("schema.rename")
        os.rename(unborn, path)
        _sync(path.parent)


def fill_sqlite(path: Path) -> None:
    """Make a new ledger in a file that is empty, and that another program may have open already."""
    with _locked(path):
        if path.exists() and path.stat().st_size:
            return
        os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = apsw.Connection(str(path))
        try:
            add_functions(connection)
            connection.execute("PRAGMA journal_mode = wal; PRAGMA synchronous = 2")
            connection.execute("BEGIN EXCLUSIVE")
            for step in migrations("sqlite"):
                connection.execute(step.text)
                done_step = {"version": step.version, "name": step.name, "checksum": step.checksum, "now": wall_clock()}
                connection.execute(_sql("migration_put"), done_step)
            connection.execute(_sql("meta_put"), {"key": "schema_version", "value": str(current_version("sqlite"))})
            connection.execute(_sql("meta_put"), {"key": "ledger_id", "value": new_id(wall_clock())})
            connection.execute("COMMIT")
        except apsw.Error as error:
            raise translated(error, path) from error
        finally:
            connection.close()
    _sync(path)
    _sync(path.absolute().parent)


def apply(connection: apsw.Connection) -> list[int]:
    """Apply what is missing, each step in one transaction with its version row."""
    done = []
    add_functions(connection)
    for step in migrations("sqlite")[version_of(connection) :]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(step.text)
            done_step = {"version": step.version, "name": step.name, "checksum": step.checksum, "now": wall_clock()}
            connection.execute(_sql("migration_put"), done_step)
            connection.execute(_sql("meta_put"), {"key": "schema_version", "value": str(step.version)})
            failpoints.hit("schema.migrate")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        done.append(step.version)
    return done


def _sql(name: str) -> str:
    return statements("sqlite")[name].text


def version_of(connection: apsw.Connection) -> int:
    """Return the schema version of a ledger; 0 if the database does not hold one."""
    if connection.execute(_sql("has_meta")).get == 0:
        return 0
    value = connection.execute(_sql("meta_value"), {"key": "schema_version"}).get
    if value is None or not str(value).isdigit():
        raise Damaged("the ledger does not say which schema it has")
    return int(value)


def migrate_sqlite(path: Path) -> list[int]:
    """Migrate an existing ledger file to the current schema and return the versions that were applied."""
    if not path.exists():
        raise NoDepot(f"no ledger found at {path}")
    with _locked(path):
        connection = connect(path)
        try:
            have = version_of(connection)
            if have == 0:
                earlier = "`longshore backfill` adopts the ledger of an earlier program"
                raise SchemaMismatch(f"{path} is a database, but no ledger", hint=earlier)
            if have > current_version("sqlite"):
                check_version(have, "sqlite", str(path))
            return apply(connection)
        except apsw.Error as error:
            raise translated(error, path) from error
        finally:
            connection.close()


def check_sqlite(path: Path) -> None:
    """Raise unless the file is a ledger with this program's schema version."""
    if not path.exists():
        raise NoDepot(f"no ledger found at {path}")
    if path.is_file() and path.stat().st_size == 0:
        raise Damaged(f"{path} is empty", hint="restore it from a backup, or remove it to start a new ledger")
    _check_schema(connect(path), path)


def check_frozen(path: Path) -> None:
    """Raise unless a read-only file is a ledger with this program's schema version."""
    _check_schema(open_readonly(path), path)


def _check_schema(connection: apsw.Connection, path: Path) -> None:
    try:
        have = version_of(connection)
        if have == 0:
            raise SchemaMismatch(f"{path} is a database, but no ledger")
        check_version(have, "sqlite", str(path))
    except apsw.Error as error:
        raise translated(error, path) from error
    finally:
        connection.close()


def drift_sqlite(connection: apsw.Connection) -> list[str]:
    """Return what differs from the schema that the migrations make."""
    version = version_of(connection)
    wanted = apsw.Connection(":memory:")
    add_functions(wanted)
    for step in migrations("sqlite")[:version]:
        wanted.execute(step.text)
    need, have = _objects(wanted), _objects(connection)
    wanted.close()
    found = [f"{name} is missing" for name in sorted(need.keys() - have.keys())]
    found += [f"{name} is not ours" for name in sorted(have.keys() - need.keys())]
    found += [f"{name} differs" for name in sorted(need.keys() & have.keys()) if need[name] != have[name]]
    sums = {row[0]: row[1] for row in connection.execute(_sql("migration_checksums"))}
    for step in migrations("sqlite")[:version]:
        if sums.get(step.version) != step.checksum:
            found.append(f"migration {step.version:04} {step.name} is not the one that was applied")
    return found


def _objects(connection: apsw.Connection) -> dict[str, str]:
    rows = connection.execute(_sql("schema_objects"))
    return {f"{kind} {name}": _SPACE.sub(" ", sql or "") for kind, name, sql in rows}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock that writers queue at: one process creates or migrates."""
    descriptor = os.open(lock_path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
