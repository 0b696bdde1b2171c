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
from longshore.ledger.connection import connect, is_frozen

if TYPE_CHECKING:
    from longshore.domain.scope import Scope

Row = tuple[Any, ...]
_HERE: Final = os.path.dirname(__file__)  # not a Path: that module alone would take longer than to ask
_STATEMENT: Final = f"{_HERE}/sql/glance/held.sql"
_MIGRATIONS: Final = f"{_HERE}/migrations/sqlite"


class Held(NamedTuple):
    """What the ledger says of one key that has a result: the columns of the statement."""

    key: str
    job_id: str
    status: str
    attempts: int
    artifact_id: str
    pointer: str
    size_bytes: int
    sha256: str


class Glance:
    """A ledger file at one moment."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def held(self, scope: Scope, job_type: str, keys: Sequence[str]) -> list[Row] | None:
        """Give the one available result of every key's job, if each has one; None where any has none, or several.

        Rows as they come: whoever tells of them makes `Held` of each, and mostly nobody does.
        """
        where = {"tenant_id": scope[0], "project_id": scope[1], "job_type": job_type}
        try:
            rows = self._connection.execute(_statement(), {**where, "keys": json.dumps(keys)}).fetchall()
        except apsw.Error:  # whoever opens the ledger properly says what is wrong with it
            return None
        return rows if len(rows) == len(keys) and len({row[0] for row in rows}) == len(keys) else None


@cache
def _statement() -> str:
    with open(_STATEMENT, encoding="utf-8") as file:
        return file.read()


@contextmanager
def glance(path: str) -> Iterator[Glance | None]:
    """Open a ledger for one look. None where a look is not enough: whoever opens it properly says what is wrong."""
    connection = _opened(path)
    try:
        yield Glance(connection) if connection is not None and _fits(connection) else None
    finally:
        if connection is not None:
            connection.close()


def _opened(path: str) -> apsw.Connection | None:
    try:
        if os.stat(path).st_size == 0 or is_frozen(path):
            return None
        return connect(path, readonly=True)
    except (OSError, LongshoreError):
        return None


def _fits(connection: apsw.Connection) -> bool:
    """Begin to read; tell whether it is a ledger with the schema of this program."""
    needed = sum(name.endswith(".sql") for name in os.listdir(_MIGRATIONS))
    try:
        connection.execute("BEGIN")
        have: object = connection.execute("SELECT value FROM _meta WHERE key = 'schema_version'").get
    except apsw.Error:
        return False
    return have == str(needed)
