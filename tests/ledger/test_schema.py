"""The schema: it says what domain.states says, guards it by itself, and is created, checked and migrated safely."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import apsw
import pytest

from longshore import compat
from longshore.domain import kinds
from longshore.domain.model import Scope
from longshore.domain.outcomes import Failed
from longshore.errors import Damaged, InvalidTransition, LongshoreError, NoDepot, SchemaMismatch
from longshore.ledger import Ledger, migrate
from longshore.ledger.backends.sqlite.connection import connect
from tests.ledger.acts import HOME, downloads, finalize, held, lease, plan, settle

NOW = migrate.current_version("sqlite")
MACHINES = {name: kinds.kind_of(name).moves for name in ("download", "torrent", "own")}
TYPES = {"download": "download", "torrent": "torrent", "own": "task"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Ledger.open(tmp_path / "ledger.db", create=True).close()
    return tmp_path / "ledger.db"


@contextmanager
def opened(path: Path) -> Iterator[apsw.Connection]:
    connection = connect(path)
    try:
        yield connection
    finally:
        connection.close()


def refused(action: Callable[[], Any]) -> str:
    with pytest.raises(apsw.ConstraintError) as caught:
        action()
    return str(caught.value)


def test_the_schema_has_exactly_the_moves_of_the_domain(path: Path) -> None:
    with opened(path) as connection:
        have = set(connection.execute("SELECT machine, from_stage, to_stage FROM stage_moves"))
    assert have == {(machine, a, b) for machine, moves in MACHINES.items() for a, to in moves.items() for b in to}


def test_the_schema_knows_exactly_the_stages_and_statuses_of_the_domain(path: Path) -> None:
    """Every combination of type, stage and status is tried on the check itself."""
    every_stage = {stage for machine in MACHINES for stage in kinds.kind_of(TYPES[machine]).stages} | {"nonsense"}
    with opened(path) as connection:
        sql = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'jobs'").get
        check = sql.split("CONSTRAINT jobs_stage_status CHECK (", 1)[1].split("    END),", 1)[0] + "    END"
        for machine, stage, status in product(MACHINES, sorted(every_stage), kinds.Status):
            row = "SELECT ? AS job_type, ? AS stage, ? AS status"
            legal = connection.execute(f"SELECT {check} FROM ({row})", (TYPES[machine], stage, status.value)).get
            assert bool(legal) == (kinds.kind_of(TYPES[machine]).stages.get(stage) == status), (machine, stage, status)


def test_the_database_itself_refuses_what_the_code_would_never_do(path: Path) -> None:
    with Ledger.open(path) as ledger:
        plan(ledger, 3)
        done, running = lease(ledger), lease(ledger)
        ledger.begin([finalize(done)])
        settle(ledger, done, held(1))
    with opened(path) as connection:

        def run(sql: str, *values: Any) -> Callable[[], Any]:
            return lambda: connection.execute(sql, values).fetchall()

        job = "UPDATE jobs SET {} WHERE job_id = ?"
        assert "terminal" in refused(run(job.format("stage = 'DEDUPED'"), done.job_id))
        assert "terminal" in refused(
            run(job.format("status = 'pending', stage = 'PLANNED', completed_at = NULL"), done.job_id)
        )
        assert "epoch" in refused(run(job.format("lease_epoch = 5"), running.job_id))
        assert "lease" in refused(run(job.format("lease_epoch = 2, lease_owner = 'thief'"), running.job_id))
        assert "lease" in refused(run(job.format("lease_owner = 'thief'"), running.job_id))
        assert "invalid_transition" in refused(
            run(
                job.format(
                    "stage = 'DEDUPED', status = 'completed', completed_at = 1, lease_owner = NULL, lease_until = NULL, slot_host = NULL"
                ),
                running.job_id,
            )
        )
        assert "jobs_stage_status" in refused(run(job.format("stage = 'nonsense'"), running.job_id))
        assert "jobs_lease_whole" in refused(run(job.format("lease_until = NULL"), running.job_id))
        assert "jobs_ready_free" in refused(run(job.format("ready = 1"), running.job_id))
        assert "jobs_processing_leased" in refused(
            run(job.format("lease_owner = NULL, lease_until = NULL, slot_host = NULL"), running.job_id)
        )
        assert "immutable" in refused(run(job.format("tenant_id = 'other'"), running.job_id))
        assert "immutable" in refused(run("UPDATE artifacts SET sha256 = 'x'"))
        assert "immutable" in refused(run("UPDATE effects SET result = '{}' WHERE state = 'confirmed'"))
        assert "immutable" in refused(run("UPDATE events SET kind = 'x'"))
        connection.execute("UPDATE artifacts SET availability = 'missing'")


def test_effects_and_grants_go_with_their_job(path: Path) -> None:
    with Ledger.open(path) as ledger:
        plan(ledger)
        running = lease(ledger)
        ledger.begin([finalize(running)])
    with opened(path) as connection:
        rows = "SELECT (SELECT count(*) FROM effects), (SELECT count(*) FROM job_claims)"
        assert connection.execute(rows).fetchone() == (1, 1)
        connection.execute("DELETE FROM events")
        connection.execute("DELETE FROM jobs WHERE job_id = ?", (running.job_id,))
        assert connection.execute(rows).fetchone() == (0, 0)


def test_a_key_has_one_current_job(path: Path) -> None:
    """Whoever looks and inserts, the database lets one through."""
    with Ledger.open(path) as ledger:
        plan(ledger)
        settle(ledger, lease(ledger), Failed("http_404", "gone"))
        assert ledger.plan(HOME, downloads(1), again="failed")[0].created
    with opened(path) as connection:
        assert connection.execute("SELECT count(DISTINCT idempotency_key), count(*) FROM jobs").fetchall() == [(1, 2)]
        assert "UNIQUE" in refused(lambda: connection.execute("UPDATE jobs SET superseded = 0").fetchall())


def test_completed_needs_a_result(path: Path) -> None:
    with Ledger.open(path) as ledger:
        plan(ledger)
        granted = lease(ledger)
        compat.advance_state(ledger, granted, "FINALIZED")
    with opened(path) as connection:
        end = "UPDATE jobs SET status='completed', stage='INDEXED', completed_at=1, lease_owner=NULL, lease_until=NULL, slot_host=NULL"
        assert "result" in refused(lambda: connection.execute(end).fetchall())


def test_rows_never_point_into_another_tenant(path: Path) -> None:
    with Ledger.open(path) as ledger:
        plan(ledger)
        settled = settle(ledger, lease(ledger), held(1))
        other = plan(ledger, scope=Scope("other", "main"))
    with opened(path) as connection:
        rows: list[tuple[str, tuple[str, ...]]] = [
            ("INSERT INTO job_artifacts VALUES ('other','main',?,'input',0,?)", (other[0], settled.artifact_ids[0]))
        ]
        rows += [("UPDATE jobs SET retry_of = ? WHERE tenant_id = 'other'", (settled.job_id,))]
        for sql, values in rows:
            assert "FOREIGN KEY" in refused(lambda sql=sql, values=values: connection.execute(sql, values).fetchall())  # type: ignore[misc]


def test_the_views_have_the_seeds_columns(path: Path) -> None:
    wanted = {
        "artifact_jobs": "job_id work_id artifact_id canonical_url state lease_owner lease_until created_at updated_at idempotency_key",
        "artifact_ops": "op_key job_id op_type started_at finished_at result_code result_json",
        "download_jobs": "id user_id book_id media_type status source external_job_id created_at_utc updated_at_utc completed_at_utc first_not_found_at_utc failure_reason",
    }
    with opened(path) as connection:
        for view, columns in wanted.items():
            have = [row[1] for row in connection.execute(f"SELECT * FROM pragma_table_info('{view}')")]
            assert set(columns.split()) <= set(have), view
    with Ledger.open(path) as ledger:
        compat.plan_job_if_absent(ledger, HOME, work_id="w", artifact_id="a", canonical_url="https://h.example/1")
    with opened(path) as connection:
        row = connection.execute("SELECT work_id, artifact_id, canonical_url, state FROM artifact_jobs").get
        assert row == ("w", "a", "https://h.example/1", "PLANNED")


def test_pragmas_are_set_and_read_back_on_every_connection(path: Path) -> None:
    for readonly in (False, True):
        connection = connect(path, readonly=readonly)
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("synchronous") == 2
        assert connection.pragma("foreign_keys") == 1
        connection.close()


def test_an_old_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(LongshoreError, match=r"3\.51\.2"):
        Ledger.open(path)


def test_no_ledger_a_foreign_file_an_empty_file_and_a_cut_file(tmp_path: Path, path: Path) -> None:
    with pytest.raises(NoDepot):
        Ledger.open(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("this is no database at all" * 100)
    (tmp_path / "empty.db").touch()
    for name in ("text.db", "empty.db"):
        with pytest.raises(Damaged):
            Ledger.open(tmp_path / name, create=True)
    other = apsw.Connection(str(tmp_path / "other.db"))
    other.execute("CREATE TABLE t (a)")
    other.close()
    with pytest.raises(SchemaMismatch):
        Ledger.open(tmp_path / "other.db", create=True)


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    with opened(path) as connection:
        connection.execute("UPDATE _meta SET value = '99' WHERE key = 'schema_version'")
    with pytest.raises(SchemaMismatch, match="99"):
        Ledger.open(path)
    with pytest.raises(SchemaMismatch, match="99"):
        migrate.migrate_sqlite(path)


def test_drift_is_found_and_named(path: Path) -> None:
    with opened(path) as connection:
        assert migrate.drift_sqlite(connection) == []
        connection.execute("DROP INDEX jobs_key; CREATE TABLE mine (a); DROP VIEW artifact_ops")
        connection.execute("CREATE VIEW artifact_ops AS SELECT 1 AS one; UPDATE _migrations SET checksum = 'x'")
        found = "; ".join(migrate.drift_sqlite(connection))
    for words in (
        "index jobs_key is missing",
        "table mine is not ours",
        "view artifact_ops differs",
        "0001 initial is not",
    ):
        assert words in found


@pytest.fixture
def two_migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program that knows one migration more."""
    folder = tmp_path / "migrations"
    (folder / "sqlite").mkdir(parents=True)
    for known_step in (migrate.FOLDER / "sqlite").glob("*.sql"):
        (folder / "sqlite" / known_step.name).write_text(known_step.read_text())
    second = folder / "sqlite" / f"{NOW + 1:04}_more.sql"
    second.write_text("CREATE TABLE more (a INTEGER) STRICT;")
    known = migrate.migrations
    monkeypatch.setattr(migrate, "migrations", lambda dialect: known(dialect, folder))
    yield second
    known.cache_clear()


def test_an_older_schema_is_refused_until_it_is_migrated(path: Path, two_migrations: Path) -> None:
    with pytest.raises(SchemaMismatch, match=f"schema {NOW}"):
        Ledger.open(path)
    assert migrate.migrate_sqlite(path) == [NOW + 1]
    assert migrate.migrate_sqlite(path) == []
    Ledger.open(path).close()


def test_every_older_schema_with_jobs_in_it_becomes_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = migrate.migrations
    for version in range(1, NOW):
        path = tmp_path / f"{version}.db"
        with monkeypatch.context() as older:
            older.setattr(migrate, "migrations", lambda dialect, version=version: known(dialect)[:version])
            migrate.create_sqlite(path)
            with opened(path) as connection:
                connection.execute(_OLD_JOBS)
                idle = connect(path)  # somebody who looked before and looks again afterwards
                assert idle.execute("SELECT count(*) FROM jobs").get == 2
        try:
            assert migrate.migrate_sqlite(path) == list(range(version + 1, NOW + 1))
            idle.execute("UPDATE jobs SET lease_owner = 'me', lease_until = 9, lease_epoch = 1 WHERE job_id = 't'")
            with pytest.raises(apsw.ConstraintError, match="jobs_lease_processing"):
                idle.execute("UPDATE jobs SET lease_owner = 'me', lease_until = 9, lease_epoch = 1 WHERE job_id = 'd'")
        finally:
            idle.close()
        with opened(path) as connection:
            assert migrate.drift_sqlite(connection) == []
            assert connection.execute("PRAGMA integrity_check").get == "ok"


_OLD_JOBS = """
INSERT INTO lanes (lane_id, tenant_id, project_id, host, job_type) VALUES (1, 't', 'p', '', 'torrent');
INSERT INTO jobs (tenant_id, project_id, job_id, job_type, status, stage, lane_id, created_at, updated_at)
VALUES ('t', 'p', 't', 'torrent', 'pending', 'queued', 1, 1, 1), ('t', 'p', 'd', 'download', 'pending', 'PLANNED', 1, 1, 1);
"""


def test_a_migration_that_fails_leaves_nothing_behind(path: Path, two_migrations: Path) -> None:
    two_migrations.write_text("CREATE TABLE more (a INTEGER) STRICT; INSERT INTO nowhere VALUES (1);")
    with pytest.raises(LongshoreError):
        migrate.migrate_sqlite(path)
    with opened(path) as connection:
        assert migrate.version_of(connection) == NOW
        assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'more'").get == 0


@pytest.mark.parametrize("place", ["schema.migrate", "schema.create", "schema.rename"])
def test_a_crash_while_a_ledger_is_made_is_no_obstacle(tmp_path: Path, place: str) -> None:
    code = "import sys; from longshore.ledger import Ledger; Ledger.open(sys.argv[1], create=True)"
    env = {**os.environ, "LONGSHORE_FAILPOINTS": f"{place}=kill"}
    target = tmp_path / "deep" / "ledger.db"
    died = subprocess.run([sys.executable, "-c", code, str(target)], env=env, check=False)
    assert died.returncode == -signal.SIGKILL
    assert not target.exists()
    with pytest.raises(NoDepot):
        Ledger.open(target)
    with Ledger.open(target, create=True) as ledger:
        plan(ledger)
    assert sorted(file.name for file in target.parent.iterdir() if file.name.endswith(".new")) == []


def test_a_wrong_move_is_our_error_when_the_database_finds_it(path: Path) -> None:
    with Ledger.open(path) as ledger:
        plan(ledger)
        granted = lease(ledger)
        compat.advance_state(ledger, granted, "STREAMING")
        with pytest.raises(InvalidTransition):
            ledger.write(lambda tx: tx.many("move_stage", [("HEAD_DONE", 0, 1, 1, granted.epoch)]))
