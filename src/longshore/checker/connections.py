"""Connections of the checker's own: read-only, plain SQL, nothing of the ledger's code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from longshore.errors import Damaged, NoDepot, NotPermitted

_INDEXES = """
SELECT c.oid, c.relname FROM pg_class c JOIN pg_am m ON m.oid = c.relam JOIN pg_index i ON i.indexrelid = c.oid
 WHERE m.amname = 'btree' AND c.relnamespace = 'public'::regnamespace AND i.indisready AND i.indisvalid
"""


class Statement(NamedTuple):
    """A named statement with its sentence."""

    name: str
    sentence: str
    sql: str


class Witness(Protocol):
    """Reads a ledger on either database."""

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Run one statement."""

    def integrity(self) -> Iterator[str]:
        """Return what the database itself finds wrong with its files."""

    def close(self) -> None:
        """Disconnect."""


def statements() -> list[Statement]:
    """Read `checks.sql`: name line, sentence, statement."""
    text = files("longshore.checker").joinpath("checks.sql").read_text(encoding="utf-8")
    found = re.findall(r"^-- (\w+) --\n-- (.+?)\n(.+?;)\s*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return [Statement(*entry) for entry in found]


class SqliteWitness:
    """Reads a SQLite ledger."""

    def __init__(self, path: Path) -> None:
        import apsw

        if not path.exists():
            raise NoDepot(f"no ledger found at {path}")
        self._errors = (apsw.Error, UnicodeDecodeError)  # a text that is not UTF-8 is damage, too
        # If the directory is not writable and has no WAL, the file is the whole ledger and does not change.
        log, room = Path(f"{path}-wal"), os.statvfs(path.parent)
        still = not os.access(path.parent, os.W_OK) or room.f_bfree * room.f_frsize < 65_536
        still = still and not (log.exists() and log.stat().st_size)
        name = f"file:{quote(str(path))}?mode=ro" + ("&immutable=1" if still else "")
        self._connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        self._connection.set_busy_timeout(60_000)
        self._connection.execute("BEGIN")  # one moment for all statements

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Run one statement."""
        try:
            yield from self._connection.execute(sql)
        except self._errors as error:
            raise Damaged(f"the ledger cannot be read: {error}") from error

    def integrity(self) -> Iterator[str]:
        """SQLite's own checks."""
        yield from (str(row[0]) for row in self.rows("PRAGMA integrity_check") if row[0] != "ok")
        yield from (f"foreign key of {row[0]} row {row[1]}" for row in self.rows("PRAGMA foreign_key_check"))

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class PostgresWitness:
    """Reads a PostgreSQL ledger; its role must see all tenants, because a policy would hide what is wrong."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._connection = psycopg.connect(url)
        self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self._connection.read_only = True
        sees_all = self._connection.execute(
            "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
        if not sees_all or not sees_all[0]:
            self._connection.close()
            raise NotPermitted(
                "the full check must see all tenants",
                hint="name a ledger URL whose role is a superuser or has BYPASSRLS",
            )

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Run one statement."""
        yield from self._connection.execute(sql.encode())

    def integrity(self) -> Iterator[str]:
        """PostgreSQL checks its own constraints; what is not validated would hide rows. Indexes by amcheck, where it is."""
        sql = "SELECT conname FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid WHERE NOT c.convalidated"
        yield from (f"constraint {row[0]} is not validated" for row in self.rows(sql))
        if list(self.rows("SELECT 1 FROM pg_extension WHERE extname = 'amcheck'")):
            yield from self._indexes()

    def _indexes(self) -> Iterator[str]:
        import psycopg

        for oid, name in list(self.rows(_INDEXES)):
            try:
                with self._connection.transaction():
                    list(self.rows(f"SELECT bt_index_check({int(oid)}, true)"))
            except psycopg.Error as error:
                yield f"index {name}: {str(error).splitlines()[0]}"

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


def witness(ledger: str) -> Witness:
    """Connect to a ledger by its address."""
    if ledger.startswith(("postgresql://", "postgres://")):
        return PostgresWitness(ledger)
    return SqliteWitness(Path(ledger))
