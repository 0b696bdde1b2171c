"""The schema on PostgreSQL: made once, refused when it does not fit, compared with what the migrations make."""

from __future__ import annotations

import threading

import psycopg
import pytest

from longshore.domain import kinds
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Scope
from longshore.errors import Damaged, NoDepot, SchemaMismatch, Unavailable
from longshore.ledger import Ledger
from longshore.ledger.backends.postgres.schema import create_postgres, drift_postgres, migrate_postgres
from longshore.ledger.migrate import current_version
from longshore.ledger.queries import history
from tests.support.postgres import Cluster


def execute(dsn: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_programs_that_start_at_once_make_one_ledger(postgres_dsn: str) -> None:
    failures: list[BaseException] = []

    def make() -> None:
        try:
            Ledger.open(postgres_dsn, create=True).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert execute(postgres_dsn, "SELECT count(*) FROM _migrations") == [(current_version("postgres"),)]
    assert execute(postgres_dsn, "SELECT count(*) FROM jobs") == [(0,)], "the rows that primed the planner are gone"


def test_where_there_is_no_ledger_none_is_made(postgres_dsn: str, postgres_cluster: Cluster) -> None:
    with pytest.raises(NoDepot) as refused:
        Ledger.open(postgres_dsn)
    assert "longshore migrate" in str(refused.value.hint)
    with pytest.raises(NoDepot, match="nowhere"):
        Ledger.open(postgres_cluster.dsn("nowhere"), create=True)
    with pytest.raises(Unavailable, match="cannot be reached"):
        Ledger.open("postgresql:///x?host=/nonexistent")


def test_migrate_makes_a_ledger(postgres_dsn: str) -> None:
    assert migrate_postgres(postgres_dsn) == list(range(1, current_version("postgres") + 1))
    assert migrate_postgres(postgres_dsn) == []
    Ledger.open(postgres_dsn).close()


def test_a_ledger_that_does_not_fit_is_refused(postgres_ledger: str) -> None:
    version = current_version("postgres")
    execute(postgres_ledger, f"UPDATE _meta SET value = '{version + 1}' WHERE key = 'schema_version'")
    for act in (Ledger.open, migrate_postgres):
        with pytest.raises(SchemaMismatch, match=str(version + 1)):
            act(postgres_ledger)
    execute(postgres_ledger, "UPDATE _meta SET value = 'three' WHERE key = 'schema_version'")
    with pytest.raises(Damaged):
        Ledger.open(postgres_ledger)
    execute(postgres_ledger, f"UPDATE _meta SET value = '{version}' WHERE key = 'schema_version'")
    assert migrate_postgres(postgres_ledger) == []
    create_postgres(postgres_ledger)
    Ledger.open(postgres_ledger).close()


def test_drift_is_found_and_named(postgres_ledger: str) -> None:
    assert drift_postgres(postgres_ledger) == []
    execute(postgres_ledger, "ALTER TABLE jobs NO FORCE ROW LEVEL SECURITY")
    execute(postgres_ledger, "DROP INDEX jobs_waiting")
    execute(postgres_ledger, "ALTER TABLE artifacts DISABLE TRIGGER artifacts_immutable")
    execute(postgres_ledger, "CREATE TABLE extra (x int)")
    execute(postgres_ledger, "DROP POLICY tenant ON events")
    found = drift_postgres(postgres_ledger)
    for words in (
        "table jobs differs",
        "index jobs_waiting is missing",
        "trigger artifacts_immutable differs",
        "table extra is not ours",
        "policy events.tenant is missing",
    ):
        assert words in found, found
    assert execute(postgres_ledger, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'longshore%'") == [(0,)]


def test_an_edited_migration_is_drift(postgres_ledger: str) -> None:
    execute(postgres_ledger, "UPDATE _migrations SET checksum = 'x'")
    assert any("is not the one that was applied" in line for line in drift_postgres(postgres_ledger))


def test_the_moves_are_the_domains(postgres_ledger: str) -> None:
    have = {tuple(row) for row in execute(postgres_ledger, "SELECT machine, from_stage, to_stage FROM stage_moves")}
    machines = {name: kinds.kind_of(name).moves for name in ("download", "torrent", "own")}
    need = {(name, one, to) for name, moves in machines.items() for one, after in moves.items() for to in after}
    assert have == need
    pairs = execute(
        postgres_ledger,
        "SELECT t.name, a.stage, b.stage FROM (VALUES ('download', 'download'), ('torrent', 'torrent'), ('own', 'mine'))"
        " AS t (name, type), LATERAL (SELECT from_stage FROM stage_moves UNION SELECT to_stage FROM stage_moves) AS a (stage),"
        " LATERAL (SELECT from_stage FROM stage_moves UNION SELECT to_stage FROM stage_moves) AS b (stage)"
        " WHERE stage_move(t.type, a.stage, b.stage)",
    )
    assert {tuple(row) for row in pairs} == need, "the trigger's function knows the same moves"


def test_both_engines_have_the_same_tables_and_columns(
    postgres_ledger: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import apsw

    path = tmp_path_factory.mktemp("sqlite") / "ledger.db"
    Ledger.open(path, create=True).close()
    connection = apsw.Connection(str(path))
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")]
    sqlite = {
        (name, row[1])
        for name in names
        if not name.startswith("sqlite_")
        for row in connection.execute(f"PRAGMA table_info({name})")
    }
    connection.close()
    rows = execute(
        postgres_ledger, "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
    )
    found = {tuple(row) for row in rows if row[0] != "commits"}  # of connections, which a file does not have
    assert found - sqlite == {("url_versions", "url_hash"), ("jobs", "work_hash"), ("jobs", "run_hash")}
    assert sqlite - {tuple(row) for row in rows} == set()


def test_events_of_a_restored_ledger_go_on_above_the_old_ones(postgres_ledger: str) -> None:
    scope = Scope("a", "p")
    execute(
        postgres_ledger,
        "INSERT INTO events (seq, tenant_id, project_id, kind, at) VALUES (4000000000000000, 'a', 'p', 'old', 0);"
        "INSERT INTO counters (tenant_id, project_id, status, slot, n) VALUES ('a', 'p', 'pending', 0, 0)",
    )
    with Ledger.open(postgres_ledger) as ledger:
        assert [event.kind for event in ledger.read(history.events_after, scope, 0)] == ["old"]
        last = ledger.read(history.last_event, scope)
        job_id = ledger.plan(scope, [download_request("https://a.example/1")])[0].job_id
        ledger.cancel(scope, [job_id])
        assert [event.kind for event in ledger.read(history.events_after, scope, last)] == ["canceled"]
