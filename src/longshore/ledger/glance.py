"""One look into a ledger file: is all of this held? Needs no threads, no writer and no records, and changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import apsw

from longshore.errors import LongshoreError
from longshore.ledger.connection import connect, is_frozen
from longshore.ledger.statements import statements

if TYPE_CHECKING:
    from longshore.domain.scope import Scope

_MIGRATIONS: Final = Path(__file__).parent / "migrations" / "sqlite"


class HeldRow(NamedTuple):
    """What the ledger says of one key that has a result."""

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

    def held(self, scope: Scope, job_type: str, keys: Sequence[str]) -> list[HeldRow] | None:
        """Give the one available result of every key's job, if each has one; None where any has none, or several."""
        where = {"tenant_id": scope[0], "project_id": scope[1], "job_type": job_type}
        rows = self._connection.execute(statements("sqlite")["plan_held"].text, {**where, "keys": json.dumps(keys)})
        found = list(map(HeldRow._make, rows.fetchall()))
        return found if len(found) == len(keys) and len({row[0] for row in found}) == len(keys) else None


@contextmanager
def glance(path: Path) -> Iterator[Glance | None]:
    """Open a ledger for one look. None where a look is not enough: whoever opens it properly says what is wrong."""
    connection = _opened(path)
    try:
        yield Glance(connection) if connection is not None and _fits(connection) else None
    finally:
        if connection is not None:
            connection.close()


def _opened(path: Path) -> apsw.Connection | None:
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
