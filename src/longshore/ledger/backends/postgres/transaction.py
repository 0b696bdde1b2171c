"""A transaction on PostgreSQL: named statements in pipeline mode, waited for only where their rows are read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg

from longshore.domain.identity.logins import NO_LOGINS, Logins
from longshore.domain.model import Micros
from longshore.domain.policy.tenant_budgets import NO_BUDGET, Budget
from longshore.ledger.backends.postgres.connections import AGAIN, Connection, is_lost
from longshore.ledger.statements import Dialect, Statement, statements
from longshore.ledger.transaction import NO_HOOKS, Row

_CLOCK: Final = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
_ENTER: Final = Statement("enter", "SELECT set_config('longshore.tenant', %(tenant_id)s, true)", ("tenant_id",))
_RELEASE: Final = Statement("release", "RELEASE attempt", ())


class PostgresTx:
    """Named statements on one connection inside one transaction, in pipeline mode.

    A statement is waited for only where its rows or their number are asked for: the name of the tenant, all writes whose
    result is not read, and the clock cost no round trip of their own. They leave together with the next question or the
    COMMIT, not before: in between the server counts the session as idle, and ends it if this machine stands still.
    """

    dialect: Dialect = "postgres"
    __slots__ = ("_begun", "_connection", "_later", "_pipeline", "_statements", "_tenant", "budget", "hooks", "logins")

    def __init__(
        self,
        connection: Connection,
        pipeline: psycopg.Pipeline,
        begun: Begun,
        budget: Budget = NO_BUDGET,
        logins: Logins = NO_LOGINS,
        hooks: Mapping[str, Any] = NO_HOOKS,
    ) -> None:
        self._connection, self._pipeline, self._begun = connection, pipeline, begun
        self._statements: dict[str, Statement] = statements("postgres")
        self._tenant: str | None = None
        self._later: list[tuple[Statement, Sequence[Row]]] = []
        self.budget, self.logins, self.hooks = budget, logins, hooks

    @property
    def now(self) -> Micros:
        """The time of the transaction."""
        if self._begun.at is None and not self._begun.is_here:
            self._pipeline.sync()
        return self._begun.at if self._begun.at is not None else self._begun.read()

    def enter(self, tenant_id: str) -> None:
        """Set the tenant for the following statements; row-level security rejects statements without one."""
        if tenant_id != self._tenant:
            self._later.append((_ENTER, [(tenant_id,)]))
            self._tenant = tenant_id

    def _ended(self, name: str, params: Mapping[str, Any]) -> psycopg.Cursor[Any]:
        """Run a statement, and wait for it and all before."""
        self.flush()
        cursor = self._connection.execute(self._statements[name].text, params)
        self._pipeline.sync()
        return cursor

    def all(self, name: str, **params: Any) -> list[Row]:
        """Run a statement and give its rows."""
        cursor = self._ended(name, params)
        return cursor.fetchall() if cursor.description else []

    def one(self, name: str, **params: Any) -> Row | None:
        """Run a statement and give its first row."""
        cursor = self._ended(name, params)
        return cursor.fetchone() if cursor.description else None

    def run(self, name: str, **params: Any) -> int:
        """Run a statement and give the number of rows it changed."""
        return max(self._ended(name, params).rowcount, 0)

    def many(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run a statement for every row and give all rows that came back.

        A text with arrays takes the columns whole, all rows at once; any other is sent row by row, pipelined.
        """
        if not rows:
            return []
        statement = self._statements[name]
        if "[]" in statement.text:
            cursor = self._ended(name, _columns(statement, rows))
            return cursor.fetchall() if cursor.description else []
        self.flush()
        cursor = self._connection.cursor()
        cursor.executemany(statement.text, _rows(statement, rows), returning=True)
        found: list[Row] = []
        while True:
            if cursor.description:
                found += cursor.fetchall()
            if not cursor.nextset():
                return found

    def send(self, name: str, rows: Sequence[Row]) -> None:
        """Run a statement for every row without waiting for its end."""
        if rows:
            self._later.append((self._statements[name], rows))

    def flush(self) -> None:
        """Hand what was sent to the connection."""
        later, self._later = self._later, []
        for statement, rows in later:
            if "[]" in statement.text:
                self._connection.execute(statement.text, _columns(statement, rows))
            else:
                self._connection.cursor().executemany(statement.text, _rows(statement, rows))

    def execute(self, text: str, params: dict[str, Any]) -> list[Row]:
        """Run a statement of a user's own and give its rows."""
        self.flush()
        cursor = self._connection.execute(text.encode(), params)
        self._pipeline.sync()
        return cursor.fetchall() if cursor.description else []

    def attempt(self, call: Callable[[], object]) -> Exception | None:
        """Run a call in a savepoint; undo its writes and return its exception if it raises."""
        self.flush()
        self._connection.execute("SAVEPOINT attempt", prepare=False)
        try:
            call()
            self.flush()
            self._pipeline.sync()
        except Exception as error:
            if isinstance(error, psycopg.Error) and (isinstance(error, AGAIN) or is_lost(error)):
                raise
            self._later.clear()
            with suppress(psycopg.Error):  # what was sent after the error
                self._pipeline.sync()
            self._connection.execute("ROLLBACK TO attempt", prepare=False)
            self._later.append((_RELEASE, [()]))
            return error
        self._later.append((_RELEASE, [()]))
        return None


def _columns(statement: Statement, rows: Sequence[Row]) -> dict[str, list[Any]]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return dict(zip(statement.columns, columns, strict=True))


def _rows(statement: Statement, rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [dict(zip(statement.columns, row, strict=True)) for row in rows]


class Begun:
    """The server's time at the begin of a transaction: asked for at once, read when it is needed."""

    __slots__ = ("_asked", "_sent_at", "ahead", "at")

    def __init__(self, connection: Connection, clock: Callable[[], Micros] | None) -> None:
        self._asked = connection.execute(_CLOCK)
        self._sent_at = uptime()
        self.at: Micros | None = clock() if clock else None
        self.ahead: Micros | None = None  # the server's clock minus this machine's; the error is below one round trip

    @property
    def is_here(self) -> bool:
        """Return whether the server's answer has come."""
        return self._asked.pgresult is not None

    def read(self) -> Micros:
        """Return the time of the transaction; the server's answer has come."""
        if self.ahead is None:
            (server,) = self._asked.fetchone() or (0,)
            self.ahead = server - self._sent_at
            self.at = server if self.at is None else self.at
        return self.at or 0


def uptime() -> Micros:
    """Return a clock of this machine that nothing sets, and that goes on while the machine is suspended."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000
