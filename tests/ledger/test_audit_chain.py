"""The audit log: append-only on both engines, chained by hash, and removed by retention only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from longshore.domain.model import SECOND, Scope
from longshore.domain.policy.audit_chain import line_hash
from longshore.ledger import Ledger, migrate
from longshore.ledger.backends.postgres import schema
from longshore.ledger.operations import audit_log
from tests.support.ledgers import Clock

HERE, THERE = Scope("a", "p"), Scope("b", "p")
DAY = 86_400


def write(ledger: Ledger, scope: Scope, *targets: str) -> None:
    for target in targets:
        entry = audit_log.NewEntry("t", "post", target, "127.0.0.1", {"name": "ä\n, 3:x"})
        ledger.write(audit_log.audit, scope, entry)


def by_hand(where: str, *statements: str) -> None:
    """Change the ledger past the program, as its owner, triggers off."""
    if where.startswith("postgresql"):
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")
            for text in statements:
                connection.execute(text.encode())
        return
    plain = apsw.Connection(where)
    for name in [
        row[0] for row in plain.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'audit%'")
    ]:
        plain.execute(f"DROP TRIGGER {name}")
    for text in statements:
        plain.execute(text)
    plain.close()


def broken(ledger: Ledger, scope: Scope = HERE) -> str:
    return ledger.read(audit_log.check_chain, scope).broken


def test_a_log_that_nobody_touched_is_whole(ledger: Ledger) -> None:
    write(ledger, HERE, "/1", "/2", "/3")
    write(ledger, THERE, "/1")
    assert [
        (scope, ledger.read(audit_log.check_chain, scope).lines) for scope in ledger.read(audit_log.audit_scopes)
    ] == [
        (HERE, 3),
        (THERE, 1),
    ]
    assert not broken(ledger)
    assert not broken(ledger, THERE)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("UPDATE audit_log SET target = '/x' WHERE number = 2", "line 2 was changed"),
        ("UPDATE audit_log SET at = at + 1 WHERE number = 3", "line 3 was changed"),
        ("DELETE FROM audit_log WHERE number = 2", "line 2 is missing"),
        ("DELETE FROM audit_log WHERE number = 1", "line 1 is missing"),
        ("DELETE FROM audit_log WHERE number = 4", "line 4 is missing"),
        ("DELETE FROM audit_log", "line 1 is missing"),
        (
            "INSERT INTO audit_log (tenant_id, project_id, at, action) VALUES ('a', 'p', 1, 'forged')",
            "a line has no number",
        ),
        (
            "INSERT INTO audit_log (tenant_id, project_id, at, action, number, hash) VALUES ('a', 'p', 1, 'forged', 5, 'x')",
            "line 5 was changed",
        ),
    ],
)
def test_what_was_done_to_the_log_by_hand_is_found(ledger: Ledger, where: str, text: str, found: str) -> None:
    write(ledger, HERE, "/1", "/2", "/3", "/4")
    by_hand(where, text)
    assert broken(ledger) == found


def test_the_database_refuses_to_change_or_remove_lines(ledger: Ledger, where: str) -> None:
    write(ledger, HERE, "/1", "/2")
    for text in (
        "UPDATE audit_log SET target = 'x'",
        "DELETE FROM audit_log",
        "DELETE FROM audit_heads",
    ):
        with pytest.raises((psycopg.Error, apsw.Error), match="audit"):
            as_owner(where, text)
    assert not broken(ledger)


def as_owner(where: str, text: str) -> None:
    if where.startswith("postgresql"):
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute("SELECT set_config('longshore.tenant', 'a', false)")
            connection.execute(text.encode())
        return
    plain = apsw.Connection(where)
    try:
        plain.execute(text)
    finally:
        plain.close()


def test_retention_removes_the_oldest_lines_and_the_chain_stays_whole(ledger: Ledger, clock: Clock) -> None:
    write(ledger, HERE, "/1", "/2", "/3")
    clock.sleep(10 * DAY)
    write(ledger, HERE, "/4")
    before = clock() - 5 * DAY * SECOND
    assert ledger.write(audit_log.forget_lines, HERE, before=before, many=2) == 2
    assert not broken(ledger)
    assert ledger.write(audit_log.forget_lines, HERE, before=before, many=2) == 1
    assert ledger.write(audit_log.forget_lines, HERE, before=before, many=2) == 0
    write(ledger, HERE, "/5")
    assert [line.target for line in ledger.read(audit_log.audit_entries, HERE)] == ["/5", "/4"]
    end: Any = ledger.read(audit_log.check_chain, HERE)
    assert (end.broken, end.number, end.lines) == ("", 5, 2)


def test_many_writers_make_one_chain(ledger: Ledger) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: write(ledger, HERE, f"/{n}"), range(60)))
    end: Any = ledger.read(audit_log.check_chain, HERE)
    assert (end.broken, end.number) == ("", 60)


OLD_LINES = [
    f"INSERT INTO audit_log (tenant_id, project_id, at, token_id, action, target, detail, remote)"
    f" VALUES ('{tenant}', 'p', {n}, 't', 'post', '/ä{n}', NULL, 'local')"
    for tenant, n in (("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3))
]


def test_lines_from_before_the_chain_are_chained_by_the_migration_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    plain = apsw.Connection(str(path))
    for step in migrate.migrations("sqlite")[:8]:
        plain.execute(step.text)
        facts = (step.version, step.name, step.checksum, 0)
        plain.execute("INSERT INTO _migrations (version, name, checksum, applied_at) VALUES (?, ?, ?, ?)", facts)
    plain.execute("INSERT OR REPLACE INTO _meta (key, value) VALUES ('schema_version', '8')")
    for text in OLD_LINES:
        plain.execute(text)
    plain.close()
    assert migrate.migrate_sqlite(path)
    check_migrated(str(path))


def test_lines_from_before_the_chain_are_chained_by_the_migration_postgres(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "migrations", lambda dialect: migrate.migrations(dialect)[:8])
    monkeypatch.setattr(schema, "_prime", lambda _: None)  # it knows the tables of today
    schema.create_postgres(postgres_dsn)
    by_hand(postgres_dsn, *OLD_LINES, "GRANT longshore_app TO postgres")
    monkeypatch.undo()
    assert schema.migrate_postgres(postgres_dsn)
    check_migrated(postgres_dsn)


def check_migrated(where: str) -> None:
    with Ledger.open(where) as ledger:
        write(ledger, HERE, "/new")
        ends = [ledger.read(audit_log.check_chain, scope) for scope in (HERE, THERE)]
        assert [(end.broken, end.number) for end in ends] == [("", 4), ("", 2)]


def test_both_engines_compute_the_same_hash(postgres_ledger: str) -> None:
    fields = ["1", "a", "p", None, "ä\n, 3:x", ""]
    with psycopg.connect(postgres_ledger) as connection:
        row = connection.execute("SELECT audit_hash('before', VARIADIC %s::text[])", (fields,)).fetchone()
    assert row == (line_hash("before", *fields),)
