"""What verbs touch in a ledger of 100,000 jobs: as many rows as they give, on both engines, with and without statistics.

Not time: PostgreSQL counts the rows and index entries that a transaction read, SQLite the steps of its machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from longshore.domain.model import Scope, Status
from longshore.domain.outcomes import Failed
from longshore.domain.requests import download_request
from longshore.ledger import Ledger, leasing, listing, manifest, planning, settling, sweeping
from longshore.ledger.postgres import Postgres, PostgresTx
from longshore.ledger.sqlite import SqliteTx, connect
from longshore.ledger.tx import Tx
from tests.support.ledgers import START, build_template
from tests.support.postgres import Cluster

JOBS = 100_000
A = Scope("a", "p")
NOW = START + 1_000_000
BATCH = 50
# Per status one job in five of each: ready, waiting, completed, failed, leased (half of them expired).
FILL = """
INSERT INTO hosts (host, updated_at) SELECT 'h' || {n} || '.example', 0 FROM {numbers_20};
INSERT INTO lanes (lane_id, tenant_id, project_id, host, job_type, ready)
SELECT {n}, 'a', 'p', 'h' || {n} || '.example', 'download', 1 FROM {numbers_20};
INSERT INTO jobs (seq, tenant_id, project_id, job_id, job_type, status, stage, ready, lane_id, lease_owner, lease_until,
  lease_epoch, next_attempt_at, created_at, updated_at, completed_at, failed_at, idempotency_key, canonical_url, host, error_code,
  slot_host, lease_slots)
SELECT {n}, 'a', 'p', 'job-' || {n}, 'download',
  CASE {n} % 5 WHEN 0 THEN 'pending' WHEN 1 THEN 'pending' WHEN 2 THEN 'completed' WHEN 3 THEN 'failed' ELSE 'processing' END,
  CASE {n} % 5 WHEN 0 THEN 'PLANNED' WHEN 1 THEN 'PLANNED' WHEN 2 THEN 'INDEXED' WHEN 3 THEN 'FAILED' ELSE 'STREAMING' END,
  CASE {n} % 5 WHEN 0 THEN 1 ELSE 0 END, {n} % 20 + 1,
  CASE {n} % 5 WHEN 4 THEN 'old' END, CASE {n} % 5 WHEN 4 THEN {now} + CASE WHEN {n} % 2 = 0 THEN -{n} ELSE {n} END END,
  CASE {n} % 5 WHEN 4 THEN 1 ELSE 0 END, CASE {n} % 5 WHEN 1 THEN {now} + {n} - 50000 END, {now} - 1000000, {now} - 1000000,
  CASE {n} % 5 WHEN 2 THEN {now} END, CASE {n} % 5 WHEN 3 THEN {now} END, 'key-' || {n},
  'https://h' || ({n} % 20 + 1) || '.example/' || {n}, 'h' || ({n} % 20 + 1) || '.example',
  CASE {n} % 5 WHEN 3 THEN 'http_' || (400 + {n} % 4) END, NULL, NULL
  FROM {numbers};
INSERT INTO job_claims (tenant_id, project_id, job_id, epoch, owner, claimed_at)
SELECT 'a', 'p', 'job-' || {n}, 1, 'old', 0 FROM {numbers} WHERE {n} % 5 = 4;
INSERT INTO events (seq, tenant_id, project_id, job_id, kind, at)
SELECT {n}, 'a', 'p', 'job-' || {n}, 'failed', {now} FROM {numbers} WHERE {n} % 5 = 3;
INSERT INTO counters (tenant_id, project_id, status, n) SELECT tenant_id, project_id, status, count(*) FROM jobs GROUP BY 1, 2, 3;
"""


COUNT_FAILURES = """
INSERT INTO failure_counts (tenant_id, project_id, error_code, host, slot, n)
SELECT tenant_id, project_id, error_code, host, 0, count(*) FROM jobs WHERE status = 'failed' GROUP BY 1, 2, 3, 4;
"""


def fill(dialect: str, jobs: int = JOBS) -> str:
    if dialect == "sqlite":
        numbers = "(WITH RECURSIVE s (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM s WHERE value < {}) SELECT value FROM s)"
        after = ""
    else:
        numbers = "generate_series(1, {}) AS s (value)"
        after = COUNT_FAILURES + f"SELECT setval('jobs_seq_seq', {jobs}), setval('lanes_lane_id_seq', 100)"
    return FILL.format(n="value", now=NOW, numbers=numbers.format(jobs), numbers_20=numbers.format(20)) + after


@contextmanager
def sqlite_counter(path: Path) -> Iterator[Callable[[Callable[[Tx], Any], int], int]]:
    connection = connect(path)
    steps: list[int] = []

    def count(event: dict[str, Any]) -> None:
        steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    def touched(verb: Callable[[Tx], Any], now: int) -> int:
        connection.execute("BEGIN IMMEDIATE")
        steps.clear()
        try:
            verb(SqliteTx(connection, now))
        finally:
            connection.execute("ROLLBACK")
        return sum(steps) // 20  # about as many steps as one row of one statement takes

    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
    yield touched
    connection.close()


@contextmanager
def postgres_counter(dsn: str) -> Iterator[Callable[[Callable[[Tx], Any], int], int]]:
    backend = Postgres(dsn, lambda: NOW)
    connection = backend._connect()
    read = """SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(oid)), 0)::bigint FROM pg_class
               WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')"""

    def touched(verb: Callable[[Tx], Any], now: int) -> int:
        connection.execute("BEGIN")
        try:
            before = connection.execute(read).fetchone()
            verb(PostgresTx(connection, now, lambda _: None))
            after = connection.execute(read).fetchone()
            assert before is not None
            assert after is not None
            return int(after[0]) - int(before[0])
        finally:
            connection.execute("ROLLBACK")

    yield touched
    connection.close()
    backend.close()


def settle_some(tx: Tx) -> None:
    leases = leasing.claim(tx, "me", limit=BATCH, ttl_s=60)
    settling.settle(tx, [(lease, Failed("http_404", "gone")) for lease in leases])


def as_a(tx: Tx) -> Tx:
    tx.enter("a")
    return tx


VERBS: dict[str, Callable[[Tx], Any]] = {
    "claim": lambda tx: leasing.claim(tx, "me", limit=BATCH, ttl_s=60),
    "claim and settle": settle_some,
    "sweep": lambda tx: sweeping.sweep(tx, many=BATCH),
    "next due": sweeping.next_due,
    "plan": lambda tx: planning.plan(tx, A, [download_request(f"https://h1.example/new/{n}") for n in range(BATCH)]),
    "plan again": lambda tx: as_a(tx).all(
        "plan_find", job_type="download", keys='["key-5","key-99999"]', tenant_id="a", project_id="p"
    ),
    "list": lambda tx: listing.jobs(tx, A, listing.JobFilter(), limit=BATCH),
    "list of a status": lambda tx: listing.jobs(tx, A, listing.JobFilter(status=Status.FAILED), limit=BATCH),
    "list from the middle": lambda tx: listing.jobs(tx, A, listing.JobFilter(), after=str(JOBS // 2), limit=BATCH),
    "counts": lambda tx: listing.counts(tx, A),
    "failures": lambda tx: listing.failures(tx, A, limit=BATCH),
    "timeline": lambda tx: listing.timeline(tx, A, "job-50003"),
    "events": lambda tx: listing.events_after(tx, A, JOBS // 2, BATCH),
    "last event": lambda tx: listing.last_event(tx, A),
    "one job": lambda tx: listing.job(tx, A, "job-77777"),
    "artifacts": lambda tx: listing.artifacts(tx, A, listing.ArtifactFilter(), limit=BATCH),
    "oldest ready": lambda tx: listing.oldest_ready(tx, A),
    "purge": lambda tx: as_a(tx).all("purge_page", tenant_id="a", project_id="p", after="", before=NOW + 1, many=BATCH),
}
EARLY = NOW - 1_000_000  # nothing is expired or due: a claim sweeps first, in bounded steps, whatever its batch
AT = {"sweep": NOW}
ENOUGH = 40 * BATCH + 1_000


def check_all(touched: Callable[[Callable[[Tx], Any], int], int]) -> dict[str, int]:
    return {name: count for name, verb in VERBS.items() if (count := touched(verb, AT.get(name, EARLY))) > ENOUGH}


def test_the_ledger_touches_what_it_gives_on_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path, create=True).close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; BEGIN")
    connection.execute(fill("sqlite"))
    connection.execute("COMMIT")
    with sqlite_counter(path) as touched:
        assert check_all(touched) == {}
    connection.execute("ANALYZE")
    connection.close()
    with sqlite_counter(path) as touched:
        assert check_all(touched) == {}


def test_the_ledger_touches_what_it_gives_on_postgres(postgres_cluster: Cluster) -> None:
    with postgres_cluster.database(postgres_cluster.template("ledger", build_template)) as dsn:
        name = dsn.split("/")[3].split("?")[0]
        postgres_cluster.execute("SET session_replication_role = replica;" + fill("postgres"), database=name)
        with postgres_counter(dsn) as touched:
            assert check_all(touched) == {}
        postgres_cluster.execute("ANALYZE", database=name)
        with postgres_counter(dsn) as touched:
            assert check_all(touched) == {}


def test_the_counting_sees_a_full_scan(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path, create=True).close()
    connection = apsw.Connection(str(path))
    connection.execute(fill("sqlite", 20_000))
    connection.close()
    with sqlite_counter(path) as touched:
        assert touched(lambda tx: tx.all("count_wrong"), NOW) > ENOUGH


@pytest.mark.parametrize("name", ["purge_page", "jobs_newest"])
def test_the_statements_checked_here_exist(name: str) -> None:
    from longshore.ledger.statements import statements

    assert manifest
    assert name in statements("sqlite")
    assert name in statements("postgres")
