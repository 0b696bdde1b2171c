"""Query plans on PostgreSQL, on one ledger of 100,000 rows: claim, sweep and lists touch what they give, not what is there.

Rows are counted by the server itself, in the transaction that touched them. Row-level security could spoil a plan, too:
what is looked up by a hash goes through its index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from longshore import compat
from longshore.domain.identity.requests import download_request
from longshore.domain.model import JobRequest, Scope, Status
from longshore.domain.outcomes import Completed, Deferred
from longshore.domain.settings import HostsSettings
from longshore.ledger import Ledger
from longshore.ledger.operations import leasing, make_claimable, purging
from longshore.ledger.queries import listing, manifest, runs
from longshore.ledger.queries.listing import ArtifactFilter, JobFilter
from longshore.ledger.rows import encoded
from longshore.ledger.statements import statements
from tests.ledger.acts import downloads, held
from tests.support.ledgers import Clock
from tests.support.postgres import Cluster

HOME = Scope("default", "default")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("url_versions", {"tenant_id": ["default"] * 2, "project_id": ["default"] * 2, "canonical_url": ["a", "b"]}),
        ("url_artifacts", {"tenant_id": "default", "project_id": "default", "urls": encoded(["a", "b"])}),
    ],
)
def test_urls_are_looked_up_by_their_hash(postgres_ledger: str, name: str, given: dict[str, Any]) -> None:
    """In a join a function that is not leakproof is kept out of the index, and costs every row of the tenant."""
    with Ledger.open(postgres_ledger) as ledger:
        ledger.plan(HOME, downloads(300))
        leases = ledger.claim("w", limit=300, ttl_s=60)
        ledger.settle([(lease, held(number)) for number, lease in enumerate(leases)])

        def explained(tx: Any) -> str:
            tx.enter(HOME.tenant_id)
            tx._connection.execute(
                "SET LOCAL enable_seqscan = off"
            )  # a small table is read whole; the index must be possible
            found = tx._connection.execute("EXPLAIN " + statements("postgres")[name].text, given)
            return "\n".join(row[0] for row in found.fetchall())

        plan = ledger.read(explained)
    assert "(url_hash = r.hash)" in plan.partition("Index Cond:")[2].partition("\n")[0], plan


FREE = HostsSettings(concurrency=1_000_000, breaker_failures=0)
MULTIPLY = """
INSERT INTO jobs (tenant_id, project_id, job_id, job_type, status, stage, ready, lane_id, priority, created_at, updated_at,
  idempotency_key, canonical_url, host)
SELECT j.tenant_id, j.project_id, j.job_id || '-' || i, j.job_type, j.status, j.stage, j.ready, j.lane_id, j.priority,
  j.created_at, j.updated_at, j.idempotency_key || '-' || i, j.canonical_url || '-' || i, j.host
  FROM jobs AS j CROSS JOIN generate_series(1, 100) AS n (i) WHERE j.status = 'pending' AND j.ready = 1
"""
TOUCHED = """
SELECT COALESCE(sum(COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0)), 0) FROM pg_stat_xact_user_tables
"""


def build_big(dsn: str) -> None:
    """100,000 jobs: most ready, some over, some waiting, some leased."""
    with Ledger.open(dsn, create=True, clock=Clock()) as ledger:
        for number in range(10):
            ledger.plan(HOME, downloads(200, host=f"host{number}.example"))
        leases = ledger.claim("w", limit=1_000, ttl_s=60, defaults=FREE)
        ledger.settle([(lease, held(number)) for number, lease in enumerate(leases[:500])])
        ledger.settle([(lease, Deferred("truncated", "cut", 600.0)) for lease in leases[500:700]])
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # the rows are copies: no trigger has to look
        connection.execute("SET synchronous_commit = off")
        connection.execute(MULTIPLY)
        assert (connection.execute("SELECT count(*) FROM jobs").fetchone() or (0,))[0] > 100_000
        connection.execute("ANALYZE")


@pytest.fixture(scope="module")
def big(postgres_cluster: Cluster) -> Iterator[tuple[Ledger, Clock]]:
    clock = Clock()
    with postgres_cluster.database() as dsn:
        build_big(dsn)
        with Ledger.open(dsn, clock=clock) as ledger:
            yield ledger, clock


def touched(ledger: Ledger, verb: Callable[..., Any], *given: Any, **options: Any) -> tuple[Any, int]:
    """Run a verb and give what it gave with the number of rows that its transaction looked at."""

    def counted(tx: Any) -> tuple[Any, int]:
        before = _looked_at(tx)
        answer = verb(tx, *given, **options)
        return answer, _looked_at(tx) - before

    return ledger.write(counted)


def _looked_at(tx: Any) -> int:
    (rows,) = tx._connection.execute(TOUCHED).fetchone()
    return int(rows)


def test_a_claim_touches_what_it_takes(big: tuple[Ledger, Clock]) -> None:
    ledger, _ = big
    options = {"ttl_s": 600, "defaults": FREE, "after_tenant": ""}
    touched(ledger, leasing.claim, "warm", limit=1, **options)
    for limit in (1, 20, 200):
        leases, rows = touched(ledger, leasing.claim, "w", limit=limit, **options)
        assert len(leases) == limit
        assert rows <= 400 + 12 * limit, limit


def test_a_page_of_the_manifest_touches_its_own_jobs(big: tuple[Ledger, Clock]) -> None:
    """The last event of each job comes from the index, not from a join with all events of the project."""
    ledger, _ = big
    for limit in (50, 200):
        page, rows = touched(ledger, manifest.entries, HOME, many=limit)
        assert len(page) == limit
        assert rows <= 100 + 12 * limit, limit


def test_a_look_up_by_metadata_touches_what_it_finds(postgres_ledger: str) -> None:
    with Ledger.open(postgres_ledger) as ledger:
        requests = [JobRequest("own", str(n), params={"document": n // 2, "kind": "all"}) for n in range(400)]
        ledger.plan(HOME, requests)
        leases = ledger.claim("w", limit=400, ttl_s=60, defaults=FREE)
        ended = []
        for number, lease in enumerate(leases):
            (made,) = held(number).artifacts
            ended.append((lease, Completed((replace(made, metadata={"report": number // 2, "kind": "all"}),))))
        ledger.settle(ended)
        for wanted in (JobFilter(parameters={"document": 7}), JobFilter(metadata={"report": 7, "kind": "all"})):
            page, rows = touched(ledger, listing.jobs, HOME, wanted)
            assert len(page.items) == 2
            assert rows <= 60, wanted
        page, rows = touched(ledger, listing.artifacts, HOME, ArtifactFilter(metadata={"report": 9, "kind": "all"}))
        assert len(page.items) == 2
        assert rows <= 40


@pytest.mark.parametrize("count", [20, 200])
def test_a_purge_touches_what_it_forgets(big: tuple[Ledger, Clock], count: int) -> None:
    ledger, clock = big
    planned = ledger.plan(HOME, [download_request(f"https://old{count}.example/{n}") for n in range(400)])
    ledger.cancel(HOME, [one.job_id for one in planned])
    wanted = [one.job_id for one in planned][:count]
    gone, rows = touched(ledger, purging.purge, HOME, wanted, before=clock.now + 1)
    assert gone == count
    assert rows <= 400 + 20 * count
    (found, _), rows = touched(ledger, purging.purgeable, HOME, Status.CANCELED, before=clock.now + 1, scan=100)
    assert found
    assert rows <= 2_000


def test_a_purge_of_chains_touches_what_it_forgets(big: tuple[Ledger, Clock]) -> None:
    ledger, clock = big
    newest = [
        one.job_id for one in ledger.plan(HOME, [download_request(f"https://chain.example/{n}") for n in range(50)])
    ]
    for _ in range(3):
        ledger.cancel(HOME, newest)
        newest = [one.job_id for one in ledger.retry(HOME, newest)]
    ledger.cancel(HOME, newest)
    (found, _), rows = touched(ledger, purging.purgeable, HOME, Status.CANCELED, before=clock.now + 1)
    chains = [chain for chain in found if len(chain) == 4]
    assert len(chains) == 50
    assert rows <= 20_000
    wanted = [job_id for chain in chains for job_id in chain]
    gone, rows = touched(ledger, purging.purge, HOME, wanted, before=clock.now + 1)
    assert gone == len(wanted)
    assert rows <= 400 + 20 * len(wanted)


@pytest.mark.parametrize("limit", [10, 100])
@pytest.mark.parametrize(
    "wanted",
    [
        JobFilter(),
        JobFilter(statuses=(Status.PENDING,)),
        JobFilter(statuses=(Status.COMPLETED,)),
        JobFilter(statuses=(Status.FAILED,)),
    ],
    ids=["all", "pending", "completed", "none"],
)
def test_a_page_touches_what_it_shows(big: tuple[Ledger, Clock], wanted: JobFilter, limit: int) -> None:
    ledger, _ = big
    page, rows = touched(ledger, listing.jobs, HOME, wanted, limit=limit)
    assert len(page.items) == (0 if wanted.statuses == (Status.FAILED,) else limit)
    assert rows <= 100 + 8 * limit


def test_a_sweep_touches_what_it_finds(big: tuple[Ledger, Clock]) -> None:
    ledger, clock = big
    compat.cleanup_stale_leases(ledger)
    _, nothing = touched(ledger, make_claimable.cleanup_stale_leases)
    assert nothing <= 50
    leases = ledger.claim("swept", limit=100, ttl_s=30, defaults=FREE)
    clock.sleep(31)
    found, rows = touched(ledger, make_claimable.cleanup_stale_leases)
    assert found == len(leases) == 100
    assert rows <= 400 + 12 * found


@pytest.mark.parametrize("name", ["jobs_of_work_newest", "jobs_of_work_oldest", "artifacts_of_work"])
def test_works_are_looked_up_by_their_hash(postgres_ledger: str, name: str) -> None:
    """An index on an expression is no use here: the function is not leakproof, and row-level security comes first."""
    nothing = dict.fromkeys(("statuses", "job_type", "stage", "reason", "host", "url", "run_id", "updated_after"))
    nothing |= dict.fromkeys(("artifact_type", "availability", "sha256", "current"))
    given = {**nothing, "tenant_id": "default", "project_id": "default", "work_id": "W1", "edge": 5, "many": 5}
    given["edge"] = "~" if name == "artifacts_of_work" else 5
    with Ledger.open(postgres_ledger) as ledger:
        ledger.plan(HOME, [download_request(f"https://w.example/{n}", work_id=f"W{n}") for n in range(3_000)])
        with psycopg.connect(postgres_ledger, autocommit=True) as owner:
            owner.execute("ANALYZE jobs")

        def explained(tx: Any) -> str:
            tx.enter(HOME.tenant_id)
            found = tx._connection.execute("EXPLAIN " + statements("postgres")[name].text, given)
            return "\n".join(row[0] for row in found.fetchall())

        plan = ledger.read(explained)
    assert "jobs_work" in plan, plan
    assert "(work_hash = " in plan.partition("jobs_work")[2].partition("Index Cond:")[2].partition("\n")[0], plan


def test_a_run_touches_its_own_jobs(big: tuple[Ledger, Clock]) -> None:
    ledger, _ = big
    for name in ("one", "two"):
        ledger.plan(HOME, [download_request(f"https://{name}.example/{n}", run_id=name) for n in range(50)])
    page, rows = touched(ledger, runs.runs, HOME)
    assert [len(page.items), page.items[0].jobs[Status.PENDING]] == [2, 50]
    assert rows <= 400
    found, rows = touched(ledger, listing.jobs, HOME, JobFilter(run_id="one"), limit=100)
    assert len(found.items) == 50
    assert rows <= 200
