"""One look into a ledger file: is all of this held? Needs no threads, no writer and no records, and changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import apsw

from longshore.errors import LongshoreError
from longshore.ledger.backends.sqlite.connection import connect, is_readonly

if TYPE_CHECKING:
    from longshore.domain.scope import Scope

Row = tuple[Any, ...]
_LEDGER: Final = os.path.dirname(
    os.path.dirname(__file__)
)  # os.path, because importing pathlib costs more than the query
_SQL: Final = f"{_LEDGER}/sql/fast_lookup"
_MIGRATIONS: Final = f"{_LEDGER}/migrations/sqlite"


class StoredResult(NamedTuple):
    """What the ledger says of one key that has a result: the columns of the statement."""

    key: str
    job_id: str
    status: str
    attempts: int
    artifact_id: str
    pointer: str
    size_bytes: int
    sha256: str


class FastLookup:
    """A ledger file at one moment."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def held(self, scope: Scope, job_type: str, keys: Sequence[str]) -> list[Row] | None:
        """Return the one available result of every key's job, if each has one; None where any has none, or several.

        Return raw rows: most callers only need to know that they exist; the others convert them to `StoredResult`.
        """
        where = {"tenant_id": scope[0], "project_id": scope[1], "job_type": job_type}
        try:
            rows = self._connection.execute(_sql("stored"), {**where, "keys": json.dumps(keys)}).fetchall()
        except apsw.Error:  # the regular path opens the ledger and reports the error
            return None
        return rows if len(rows) == len(keys) and len({row[0] for row in rows}) == len(keys) else None


@cache
def _sql(name: str) -> str:
    with open(f"{_SQL}/{name}.sql", encoding="utf-8") as file:
        return file.read()


@contextmanager
def open_fast_lookup(path: str) -> Iterator[FastLookup | None]:
    """Open a ledger for one query; yield None if that fails: the regular path opens it again and reports the error."""
    connection = _opened(path)
    try:
        yield FastLookup(connection) if connection is not None and _fits(connection) else None
    finally:
        if connection is not None:
            connection.close()


def _opened(path: str) -> apsw.Connection | None:
    try:
        if os.stat(path).st_size == 0 or is_readonly(path):
            return None
        return connect(path, readonly=True)
    except (OSError, LongshoreError):
        return None


def _fits(connection: apsw.Connection) -> bool:
    """Begin to read; tell whether it is a ledger with the schema of this program."""
    needed = sum(name.endswith(".sql") for name in os.listdir(_MIGRATIONS))
    try:
        connection.execute("BEGIN")
        have: object = connection.execute(_sql("schema_version")).get
    except apsw.Error:
        return False
    return have == str(needed)
