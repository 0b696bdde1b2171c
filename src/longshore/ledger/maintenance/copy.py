"""Copy a ledger between SQLite and PostgreSQL, in both directions: every row, resumable, verified at the end.

The statements are made from the tables' own columns, so a column that is added later is copied too. Rows that are there
already are left as they are: going on after an interruption is running it again. Stop the workers first: a ledger in
which leases are held is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from longshore import failpoints
from longshore.errors import Conflict, Damaged
from longshore.ledger.backends.sqlite.connection import connect as connect_sqlite
from longshore.ledger.ledger import Ledger, is_postgres
from longshore.ledger.operations.ledger_identity import ledger_id, make_ledger_id

BATCH: Final = 2_000
failpoints.declare("copy.page", "copy.finish")
# In the order of their foreign keys, each with its key. failure_counts are kept by triggers.
TABLES: Final[dict[str, tuple[str, ...]]] = {
    "_meta": ("key",),  # the schema's version, and the ledger's id: the copy has the same stores
    "hosts": ("host",),
    "budgets": ("tenant_id",),
    "tokens": ("token_id",),
    "lanes": ("tenant_id", "lane_id"),
    "jobs": ("tenant_id", "project_id", "job_id"),
    "job_claims": ("tenant_id", "project_id", "job_id", "epoch"),
    "effects": ("tenant_id", "project_id", "job_id", "op_key"),
    "blobs": ("tenant_id", "project_id", "sha256"),
    "artifacts": ("tenant_id", "project_id", "artifact_id"),
    "job_artifacts": ("tenant_id", "project_id", "job_id", "role", "ordinal"),
    "artifact_metadata": ("tenant_id", "project_id", "name", "value", "artifact_id"),
    "job_params": ("tenant_id", "project_id", "name", "value", "job_id"),
    "job_summaries": ("tenant_id", "project_id", "job_id"),
    "artifact_tombstones": ("tenant_id", "project_id", "artifact_id"),
    "failed_releases": ("tenant_id", "project_id", "book_id", "media_type", "release"),
    "url_versions": ("tenant_id", "project_id", "canonical_url"),
    "events": ("tenant_id", "project_id", "seq"),
    "feed_consumers": ("tenant_id", "project_id", "consumer"),
    "webhooks": ("tenant_id", "project_id", "webhook_id"),
    "webhook_failures": ("tenant_id", "project_id", "webhook_id", "message_id"),
    "counters": ("tenant_id", "project_id", "status", "slot"),
    "tombstones": ("tenant_id", "project_id", "job_type", "idempotency_key"),
    "books": ("tenant_id", "project_id", "book_id"),
    "media_assets": ("tenant_id", "project_id", "book_id", "media_type"),
    "torrents": ("tenant_id", "project_id", "job_id"),
    "audit_heads": ("tenant_id", "project_id"),
    "audit_log": ("tenant_id", "project_id", "seq"),
    "request_keys": ("tenant_id", "project_id", "request_key"),
}
KEEP: Final = "ON CONFLICT DO NOTHING"
CONFLICT: Final = {
    "_meta": "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
}  # a new target has an id of its own
REFERENCES: Final = ("retry_of", "reuse_of_job_id")
NUMBERED: Final = {"jobs": "seq", "lanes": "lane_id", "audit_log": "seq"}
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CopyResult:
    """What was compared at the end: rows and a hash over all of them, by table."""

    rows: dict[str, int]
    hashes: dict[str, str]


class End(Protocol):
    """One side of a copy."""

    def columns(self, table: str) -> list[str]:
        """Return the columns that hold what was written."""

    def tenants(self) -> list[str]:
        """Return the tenants."""

    def page(self, table: str, columns: Sequence[str], tenant: str | None, after: Row | None) -> list[Row]:
        """Return the next rows in the order of the key."""

    def put(self, table: str, columns: Sequence[str], tenant: str | None, rows: Sequence[Row]) -> None:
        """Write rows that are not there yet, in one transaction."""

    def finish(self) -> None:
        """Advance the sequences past the copied rows."""

    def held(self, now: int) -> int:
        """Count live leases."""

    def close(self) -> None:
        """Close the connection."""


def page_text(table: str, columns: Sequence[str], place: str, *, tenant: bool, after: bool) -> str:
    """Write the statement of one page."""
    key = TABLES[table]
    where = [f"tenant_id = {place}"] if tenant else []
    if after:
        where.append(f"({', '.join(key)}) > ({', '.join([place] * len(key))})")
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    return f"SELECT {', '.join(columns)} FROM {table}{condition} ORDER BY {', '.join(key)} LIMIT {BATCH}"


class SqliteEnd:
    """A ledger file, read on one snapshot."""

    def __init__(self, path: Path, *, reading: bool) -> None:
        self._connection = connect_sqlite(path)
        if reading:
            self._connection.execute("BEGIN; SELECT 1 FROM _meta")

    def columns(self, table: str) -> list[str]:
        """Return the columns that hold what was written."""
        return [str(row[1]) for row in self._connection.execute(f"PRAGMA table_info({table})")]

    def tenants(self) -> list[str]:
        """Return the tenants."""
        having = " UNION ".join(
            f"SELECT tenant_id FROM {table}" for table in ("lanes", "counters", "budgets", "audit_heads")
        )
        rows = self._connection.execute(f"{having} ORDER BY 1")
        return [str(row[0]) for row in rows]

    def page(self, table: str, columns: Sequence[str], tenant: str | None, after: Row | None) -> list[Row]:
        """Return the next rows in the order of the key."""
        text = page_text(table, columns, "?", tenant=tenant is not None, after=after is not None)
        arguments = (*((tenant,) if tenant is not None else ()), *(after or ()))
        try:
            return self._connection.execute(text, arguments).fetchall()
        except UnicodeDecodeError as error:
            raise Damaged(
                f"the ledger is damaged: a text in the table {table} is not UTF-8",
                hint="restore it from a backup; nothing was repaired",
            ) from error

    def put(self, table: str, columns: Sequence[str], tenant: str | None, rows: Sequence[Row]) -> None:
        """Write rows that are not there yet, in one transaction."""
        places = ", ".join("?" * len(columns))
        with self._connection:
            self._connection.execute("PRAGMA defer_foreign_keys = ON")
            text = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places}) {CONFLICT.get(table, KEEP)}"
            self._connection.executemany(text, rows)

    def finish(self) -> None:
        """Check what SQLite can check by itself; its numbers go on by themselves."""
        if wrong := self._connection.execute("PRAGMA foreign_key_check").fetchall():
            raise Damaged(f"{len(wrong)} rows of the copy point nowhere")

    def held(self, now: int) -> int:
        """Count live leases."""
        return int(self._connection.execute("SELECT count(*) FROM jobs WHERE lease_until > ?", (now,)).get or 0)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class PostgresEnd:
    """A ledger in a database, by the owner's login; row-level security holds for the owner too, so tenant by tenant."""

    def __init__(self, url: str, *, reading: bool) -> None:
        from longshore.ledger.backends.postgres.connections import connect
        from longshore.ledger.backends.postgres.silence import Silence

        unlimited = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}
        self._connection = connect(url, settings=unlimited, silence=Silence(None))
        if reading:
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def _enter(self, tenant: str | None) -> None:
        self._connection.execute("SELECT set_config('longshore.tenant', %s, false)", (tenant or "",))

    def columns(self, table: str) -> list[str]:
        """Return the columns that hold what was written, without those that are made from others."""
        rows = self._connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema()"
            " AND table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position",
            (table,),
        )
        return [str(row[0]) for row in rows]

    def tenants(self) -> list[str]:
        """Return the tenants."""
        rows = self._connection.execute("SELECT tenant_id FROM dispatch_tenants()")
        return [str(row[0]) for row in rows]

    def page(self, table: str, columns: Sequence[str], tenant: str | None, after: Row | None) -> list[Row]:
        """Return the next rows in the order of the key."""
        self._enter(tenant)
        text = page_text(table, columns, "%s", tenant=tenant is not None, after=after is not None)
        arguments = (*((tenant,) if tenant is not None else ()), *(after or ()))
        return self._connection.execute(text.encode(), arguments).fetchall()

    def put(self, table: str, columns: Sequence[str], tenant: str | None, rows: Sequence[Row]) -> None:
        """Write rows that are not there yet, in one transaction and one statement: foreign keys are checked at its end."""
        self._enter(tenant)
        names = ", ".join(columns)
        with self._connection.transaction():
            self._connection.execute(
                f"CREATE TEMP TABLE incoming ON COMMIT DROP AS SELECT {names} FROM {table} WITH NO DATA".encode()
            )
            with (
                self._connection.cursor() as cursor,
                cursor.copy(f"COPY incoming ({names}) FROM STDIN".encode()) as copy,
            ):
                for row in rows:
                    copy.write_row(row)
            text = f"INSERT INTO {table} ({names}) SELECT {names} FROM incoming {CONFLICT.get(table, KEEP)}"
            self._connection.execute(text.encode())

    def finish(self) -> None:
        """Advance the sequences past the copied rows."""
        for table, column in NUMBERED.items():
            most = 0
            for tenant in self.tenants():
                self._enter(tenant)
                row = self._connection.execute(f"SELECT max({column}) FROM {table}".encode()).fetchone()
                most = max(most, int(row[0] or 0) if row else 0)
            if most:
                text = "SELECT setval(pg_get_serial_sequence(%s, %s), %s)"
                self._connection.execute(text, (table, column, most))
        self._connection.execute("SELECT dispatch_rebase_events()")

    def held(self, now: int) -> int:
        """Count live leases."""
        row = self._connection.execute(
            "SELECT coalesce(sum(leases), 0) FROM dispatch_workers(0) WHERE until > %s", (now,)
        )
        found = row.fetchone()
        return int(found[0]) if found else 0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def copy_ledger(
    source: str | Path, target: str | Path, progress: Callable[[str, int], None] | None = None
) -> CopyResult:
    """Copy every row of an idle ledger into a new one (or resume an interrupted copy), then compare both."""
    with Ledger.open(source) as old, Ledger.open(target, create=True) as new:
        now = old.now()
        if old.dialect == new.dialect == "sqlite" and Path(source).resolve() == Path(target).resolve():
            raise Conflict("a ledger is not copied onto itself")
        if old.read(ledger_id) is None:  # an interrupted copy is recognised by it
            old.write(make_ledger_id)
    reading, writing = _end(source, reading=True), _end(target, reading=False)
    try:
        if held := reading.held(now):
            raise Conflict(
                f"{held} jobs are being worked on", hint="stop the workers, wait for their leases, try again"
            )
        _check_target(reading, writing, target)
        for table in TABLES:
            _copy_table(reading, writing, table, progress or _quiet)
        failpoints.hit("copy.finish")
        writing.finish()
        checking = _end(target, reading=True)
        try:
            return _compared(reading, checking)
        finally:
            checking.close()
    finally:
        reading.close()
        writing.close()


def _check_target(reading: End, writing: End, target: str | Path) -> None:
    """Raise `Conflict` unless the target is new or has this ledger's id: nothing was written to it yet."""
    if _identity(reading) == _identity(writing):
        return
    for table, key in TABLES.items():
        if table != "_meta" and any(True for _ in _pages(writing, table, key)):
            place = "the target database" if is_postgres(target) else target
            raise Conflict(
                f"{place} is another ledger, with rows of its own", hint="name a new place; nothing was copied"
            )


def _identity(end: End) -> Any:
    return next((row[1] for row in end.page("_meta", ("key", "value"), None, None) if row[0] == "ledger_id"), None)


def _quiet(table: str, rows: int) -> None:
    """Ignore progress."""


def _end(where: str | Path, *, reading: bool) -> End:
    return PostgresEnd(str(where), reading=reading) if is_postgres(where) else SqliteEnd(Path(where), reading=reading)


def _shared(reading: End, writing: End, table: str) -> list[str]:
    have, need = reading.columns(table), writing.columns(table)
    if set(have) != set(need):
        raise Damaged(f"the table {table} has other columns in the two ledgers")
    return sorted(have)


def _pages(end: End, table: str, columns: Sequence[str]) -> Iterator[tuple[str | None, list[Row]]]:
    places = [columns.index(name) for name in TABLES[table]]
    for tenant in end.tenants() if TABLES[table][0] == "tenant_id" else [None]:
        after: Row | None = None
        while rows := end.page(table, columns, tenant, after):
            yield tenant, rows
            after = tuple(rows[-1][place] for place in places)


def _copy_table(reading: End, writing: End, table: str, progress: Callable[[str, int], None]) -> None:
    columns = _shared(reading, writing, table)
    late: list[tuple[str | None, Row]] = []  # jobs that point to one that comes later
    seen: set[str] = set()
    count = 0
    for tenant, rows in _pages(reading, table, columns):
        ready = rows
        if table == "jobs":
            ready, waiting = _ready(rows, columns, seen)
            late += [(tenant, row) for row in waiting]
        writing.put(table, columns, tenant, ready)
        failpoints.hit("copy.page")
        progress(table, count := count + len(rows))
    while late:
        left: list[tuple[str | None, Row]] = []
        for tenant in {tenant for tenant, _ in late}:
            ready, waiting = _ready([row for name, row in late if name == tenant], columns, seen)
            writing.put(table, columns, tenant, ready)
            left += [(tenant, row) for row in waiting]
        if len(left) == len(late):
            raise Damaged("jobs of the ledger point to jobs that are not there")
        late = left


def _ready(rows: Sequence[Row], columns: Sequence[str], seen: set[str]) -> tuple[list[Row], list[Row]]:
    """Part rows whose references are there, or come with them, from the others. (The ids of all jobs fit into memory.)"""
    own = columns.index("job_id")
    places = [columns.index(name) for name in REFERENCES]
    ready = list(rows)
    waiting: list[Row] = []
    while True:
        known = {row[own] for row in ready}
        lost = [
            row
            for row in ready
            if any(row[p] is not None and row[p] not in known and row[p] not in seen for p in places)
        ]
        if not lost:
            seen |= known
            return ready, waiting
        gone = {row[own] for row in lost}
        waiting += lost
        ready = [row for row in ready if row[own] not in gone]


def _compared(one: End, other: End) -> CopyResult:
    rows: dict[str, int] = {}
    hashes: dict[str, str] = {}
    for table in TABLES:
        columns = _shared(one, other, table)
        left, right = _digest(one, table, columns), _digest(other, table, columns)
        if left != right:
            raise Damaged(
                f"the copy of {table} differs: {left[0]} rows here, {right[0]} there",
                hint="the ledger was written to while it was copied, or the target was not new: begin with a new target",
            )
        rows[table], hashes[table] = left
    return CopyResult(rows, hashes)


def _digest(end: End, table: str, columns: Sequence[str]) -> tuple[int, str]:
    """Count rows and hash them independently of their order."""
    count, total = 0, 0
    for _, rows in _pages(end, table, columns):
        count += len(rows)
        for row in rows:
            total += int.from_bytes(hashlib.sha256(repr(row).encode()).digest()[:16], "big")
    return count, f"{total % (1 << 128):032x}"


__all__ = ["CopyResult", "copy_ledger"]
