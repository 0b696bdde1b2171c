"""Query plans on SQLite, on one ledger of 100,000 rows: claim, sweep, look-ups and lists touch what they give, not what is there.

(PostgreSQL: test_postgres_plans.) Steps of the virtual machine are counted, not seconds.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from longshore import compat
from longshore import ledger as ledger_package
from longshore.domain.model import Scope, Status
from longshore.domain.outcomes import Deferred
from longshore.domain.settings import HostsSettings
from longshore.ledger import Ledger
from longshore.ledger.backends.sqlite.connection import connect
from longshore.ledger.operations import purging
from longshore.ledger.queries import listing
from longshore.ledger.queries.listing import JobFilter
from longshore.ledger.statements import Statement, statements
from tests.ledger.acts import HOME, downloads, held
from tests.support.ledgers import Clock

ROWS = 100_000
FREE = HostsSettings(concurrency=1_000_000, breaker_failures=0)
HOT = (
    "planning",
    "leasing",
    "settling",
    "effects",
    "registry",
    "runs",
    "cancel_retry",
    "hosts",
    "manifest",
    "purging",
    "tenant_budgets",
    "worker",
)
SCANS_ALLOWED = {
    "job_ids_like",  # a person typed the end of an id; covering index, ids only
    "count_wrong",  # the recount reads everything, once an hour
    "jobs_forgotten",  # so does the search for what must not be
    "claims_ended",
    "url_streaming",  # large bodies under way, through an index that has no others
    "anything_available",  # ends at the first one; asked only where the store shows nothing at all
    "purge_page",  # of a page that was read before: no more rows than it asks for
    "plan_insert",  # the foreign key's look at children is only taken when constraints are deferred: none is
    "blob_insert",  # the same: a step that is jumped over unless a constraint of this very statement is open
    "lane_put",  # the foreign key's look at children is only taken when a key changes, and none does
}


# Many jobs like the planned ones, made by the database itself: planning them would take its time.
MULTIPLY = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO jobs (tenant_id, project_id, job_id, job_type, status, stage, ready, lane_id, priority, created_at, updated_at,
  idempotency_key, canonical_url, host)
SELECT j.tenant_id, j.project_id, printf('%s-%d', j.job_id, i), j.job_type, j.status, j.stage, j.ready, j.lane_id, j.priority,
  j.created_at, j.updated_at, printf('%s-%d', j.idempotency_key, i), printf('%s-%d', j.canonical_url, i), j.host
  FROM jobs AS j CROSS JOIN n WHERE j.status = 'pending' AND j.ready = 1
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 jobs: most ready, some over, some waiting, some leased."""
    path = tmp_path_factory.mktemp("plans") / "ledger.db"
    with Ledger.open(path, create=True, clock=Clock()) as ledger:
        for number in range(10):
            ledger.plan(HOME, downloads(400, host=f"host{number}.example"))
        leases = ledger.claim("w", limit=3_000, ttl_s=60, defaults=FREE)
        ledger.settle([(lease, held(number)) for number, lease in enumerate(leases[:1_500])])
        ledger.settle([(lease, Deferred("truncated", "cut", 600.0)) for lease in leases[1_500:2_500]])
    connection = connect(path)
    connection.execute(MULTIPLY, (ROWS // 1_000,))
    assert connection.execute("SELECT count(*) FROM jobs").get > ROWS
    connection.close()
    return path


@pytest.fixture
def big(template: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copy(template, tmp_path / "ledger.db")
    yield tmp_path / "ledger.db"


def test_no_statement_scans_jobs_or_what_hangs_on_them(template: Path) -> None:
    connection = connect(template, readonly=True)
    tables = "jobs|j|job_claims|effects|e|artifacts|a|job_artifacts|blobs|url_versions|events"
    scan = re.compile(
        rf"^SCAN ({tables})(?! USING (COVERING )?INDEX (jobs_(waiting|expiry|ready|slots|failed)|effects_open))\b"
    )
    whole_tenant = re.compile(rf"^SEARCH ({tables}) USING .*\(tenant_id=\?( AND project_id=\?( AND status=\?)?)?\)$")
    found = []
    for name, statement in hot_statements().items():
        values: dict[str, None] | tuple[None, ...] = {
            match[1]: None for match in re.finditer(r"(?<![:\w]):([a-z_][a-z0-9_]*)", statement.text)
        }
        if statement.columns:
            values = (None,) * len(set(re.findall(r"\?(\d+)", statement.text)))
        plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + statement.text, values)]
        if statement.block is not None:  # the same for many rows at once must find its rows as directly
            block = statement.block.format(rows=f"({','.join('?' * len(statement.columns))})")
            values = (None,) * len(statement.columns)
            plan += [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + block, values)]
        found += [f"{name}: {step}" for step in plan if scan.match(step) or whole_tenant.match(step)]
    connection.close()
    assert found == [], "\n".join(found)


LABELS = {"jobs_of_labels_newest", "jobs_of_labels_oldest", "artifacts_of_label"}


@pytest.mark.parametrize("name", sorted(LABELS))
def test_a_look_up_by_metadata_uses_its_index(template: Path, name: str) -> None:
    connection = connect(template, readonly=True)
    text = statements("sqlite")[name].text
    values = {match[1]: None for match in re.finditer(r"(?<![:\w]):([a-z_][a-z0-9_]*)", text)}
    plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + text, values)]
    connection.close()
    searched = [step for step in plan if step.startswith(("SEARCH p ", "SEARCH m "))]
    assert len(searched) == (1 if name == "artifacts_of_label" else 2), plan
    assert all("name=? AND value=?" in step for step in searched), plan
    assert not [step for step in plan if re.match(r"SCAN (?!json_each|w\b|\(|each)", step)], plan


def hot_statements() -> dict[str, Statement]:
    """The statements of what happens all the time."""
    files = [Path(ledger_package.__file__).parent / "sql" / f"{name}.sql" for name in HOT]
    names = {
        name for file in files for name in re.findall(r"^-- ([a-z_0-9]+)(?: \(.*)? --$", file.read_text(), re.MULTILINE)
    }
    return {name: statements("sqlite")[name] for name in sorted(names - SCANS_ALLOWED)}


def steps(ledger: Ledger, action: object) -> int:
    """Count the virtual machine's steps of one verb on the writer's connection."""
    connection: apsw.Connection = ledger.backend._writer  # type: ignore[attr-defined]
    count = 0

    def tick() -> bool:
        nonlocal count
        count += 1
        return False

    connection.set_progress_handler(tick, 100)
    try:
        action()  # type: ignore[operator]
    finally:
        connection.set_progress_handler(None)
    return count * 100


def test_a_claim_costs_what_it_takes_not_what_is_there(big: Path, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "small.db", create=True, clock=Clock()) as small:
        for number in range(10):
            small.plan(HOME, downloads(30, host=f"host{number}.example"))
        small.claim("warm", limit=1, ttl_s=600, defaults=FREE)
        few = steps(small, lambda: small.claim("w", limit=20, ttl_s=600, defaults=FREE))
    with Ledger.open(big, clock=Clock()) as ledger:
        ledger.claim("warm", limit=1, ttl_s=600, defaults=FREE)
        many = steps(ledger, lambda: ledger.claim("w", limit=20, ttl_s=600, defaults=FREE))
    assert many <= 2 * few + 1_000


def test_a_sweep_costs_what_it_finds(big: Path) -> None:
    clock = Clock()
    with Ledger.open(big, clock=clock) as ledger:
        nothing = steps(ledger, lambda: ledger.claim("w", limit=0, ttl_s=60))
        clock.sleep(61)
        assert compat.cleanup_stale_leases(ledger) == 500
        clock.sleep(600)
        promoted = steps(ledger, lambda: ledger.claim("w", limit=0, ttl_s=60))
    assert nothing < 3_000
    assert promoted > nothing


@pytest.mark.parametrize(
    "wanted",
    [
        JobFilter(),
        JobFilter(status=Status.PENDING),
        JobFilter(status=Status.COMPLETED),
        JobFilter(status=Status.FAILED),
    ],
    ids=["all", "pending", "completed", "none"],
)
def test_a_page_costs_what_it_shows(big: Path, wanted: JobFilter) -> None:
    with Ledger.open(big, clock=Clock()) as ledger:
        few, many = (
            steps(ledger, lambda limit=limit: ledger.write(listing.jobs, HOME, wanted, limit=limit))
            for limit in (10, 100)
        )
    assert few < 15_000
    assert many < 60_000


def test_a_purge_costs_what_it_forgets(big: Path) -> None:
    over = Clock().now + 1
    with Ledger.open(big, clock=Clock()) as ledger:
        connection: apsw.Connection = ledger.backend._writer  # type: ignore[attr-defined]
        connection.execute(
            "UPDATE jobs SET status = 'canceled', stage = 'canceled', ready = 0 WHERE status = 'pending' AND ready = 1"
        )
        chains, _ = ledger.read(purging.purgeable, HOME, Status.CANCELED, before=over, scan=400)
        found = [job_id for (job_id,) in chains]
        assert len(found) == 400
        few = steps(ledger, lambda: ledger.write(purging.purge, HOME, found[:20], before=over))
        many = steps(ledger, lambda: ledger.write(purging.purge, HOME, found[20:220], before=over))
        page = steps(ledger, lambda: ledger.write(purging.purgeable, HOME, Status.CANCELED, before=over, scan=400))
    assert few < 20_000
    assert many < 200_000
    assert page < 60_000


def test_a_purge_of_chains_costs_what_it_forgets(big: Path) -> None:
    clock = Clock()
    with Ledger.open(big, clock=clock) as ledger:
        newest = [one.job_id for one in ledger.plan(HOME, downloads(100, host="chain.example"))]
        for _ in range(3):
            ledger.cancel(HOME, newest)
            newest = [one.job_id for one in ledger.retry(HOME, newest)]
        ledger.cancel(HOME, newest)
        over = clock.now + 1
        page = steps(ledger, lambda: ledger.write(purging.purgeable, HOME, Status.CANCELED, before=over))
        chains, _ = ledger.read(purging.purgeable, HOME, Status.CANCELED, before=over)
        assert [len(chain) for chain in chains] == [4] * 100
        wanted = [job_id for chain in chains[:50] for job_id in chain]
        gone = steps(ledger, lambda: ledger.write(purging.purge, HOME, wanted, before=over))
    assert page < 150_000
    assert gone < 200_000


def test_a_ledger_with_a_hundred_thousand_rows_answers_for_another_tenant_at_once(big: Path) -> None:
    with Ledger.open(big, clock=Clock()) as ledger:
        ledger.plan(Scope("small", "p"), downloads(1))
        cost = steps(ledger, lambda: ledger.claim("w", limit=1, ttl_s=60, scope=Scope("small", "p"), defaults=FREE))
    assert cost < 5_000
