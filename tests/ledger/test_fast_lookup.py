"""One look into a ledger file: right, cheap, and silent where it cannot tell."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from longshore.domain.identity.plain_urls import plain_key
from longshore.domain.kinds import DOWNLOAD
from longshore.domain.model import Scope
from longshore.domain.settings import HostsSettings
from longshore.ledger import Ledger
from longshore.ledger.backends.sqlite.connection import connect
from longshore.ledger.queries.fast_lookup import StoredResult, _sql, open_fast_lookup
from tests.ledger.acts import HOME, downloads, held
from tests.support.ledgers import Clock

MANY = 20
FREE = HostsSettings(concurrency=1_000_000, breaker_failures=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Twenty jobs, all of them held but the last."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path, create=True, clock=Clock()) as ledger:
        ledger.plan(HOME, downloads(MANY))
        leases = sorted(
            ledger.claim("w", limit=MANY, ttl_s=60, defaults=FREE), key=lambda lease: lease.job.request.url or ""
        )
        ledger.settle([(lease, held(number)) for number, lease in enumerate(leases[:-1])])
    return path


def keys(path: Path) -> tuple[list[str], str]:
    connection = connect(path, readonly=True)
    rows = [(str(key), status) for key, status in connection.execute("SELECT idempotency_key, status FROM jobs")]
    connection.close()
    return [key for key, status in rows if status == "completed"], next(k for k, s in rows if s != "completed")


def test_it_tells_what_the_ledger_tells(path: Path) -> None:
    have, other = keys(path)
    assert len(have) == MANY - 1

    with open_fast_lookup(str(path)) as look, Ledger.open(path) as ledger:
        assert look is not None
        rows = look.held(HOME, DOWNLOAD, have)
        assert rows is not None
        for one in map(StoredResult._make, rows):
            (result,) = ledger.results(HOME, one.job_id)
            job = ledger.job(HOME, one.job_id)
            assert (one.key, one.status, one.attempts) == (job.request.key, job.status, job.attempts)
            assert (one.artifact_id, one.pointer, one.size_bytes, one.sha256) == (
                result.artifact_id,
                result.pointer,
                result.size_bytes,
                result.sha256,
            )
        assert look.held(HOME, DOWNLOAD, [*have, other]) is None
        assert look.held(HOME, DOWNLOAD, [plain_key("https://never.example/")]) is None
        assert look.held(Scope("other", "default"), DOWNLOAD, have) is None


def test_what_is_marked_missing_is_not_held(path: Path) -> None:
    have, _ = keys(path)
    with open_fast_lookup(str(path)) as look:
        assert look is not None
        (row,) = look.held(HOME, DOWNLOAD, have[:1]) or []
    with Ledger.open(path) as ledger:
        ledger.mark_missing(HOME, [StoredResult._make(row).artifact_id])

    with open_fast_lookup(str(path)) as look:
        assert look is not None
        assert look.held(HOME, DOWNLOAD, have[:1]) is None


def test_every_step_is_a_step_into_an_index(path: Path) -> None:
    connection = connect(path, readonly=True)
    given = {"tenant_id": "", "project_id": "", "job_type": "", "keys": "[]"}
    plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + _sql("stored"), given)]
    connection.close()

    assert [step.split()[:2] for step in plan] == [["SCAN", "k"], ["SEARCH", "j"], ["SEARCH", "r"], ["SEARCH", "a"]]
    assert "idempotency_key=?" in plan[1]
    assert "job_id=? AND role=?" in plan[2]
    assert "artifact_id=?" in plan[3]


def test_it_changes_nothing_and_leaves_nothing_behind(path: Path) -> None:
    before, files = path.read_bytes(), sorted(path.parent.iterdir())

    with open_fast_lookup(str(path)) as look:
        assert look is not None
        look.held(HOME, DOWNLOAD, keys(path)[0])

    assert path.read_bytes() == before
    assert sorted(path.parent.iterdir()) == files


@pytest.mark.parametrize("damage", ["absent", "empty", "no database", "no ledger", "older", "newer", "cut"])
def test_where_it_cannot_tell_it_says_nothing(path: Path, damage: str) -> None:
    have, _ = keys(path)
    if damage == "absent":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "no database":
        path.write_bytes(b"x" * 10_000)
    elif damage == "no ledger":
        path.unlink()
        apsw.Connection(str(path)).execute("CREATE TABLE other (x)")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: 3 * 4096])
    else:
        change = "value - 1" if damage == "older" else "value + 1"
        connection = connect(path)
        connection.execute(f"UPDATE _meta SET value = CAST({change} AS TEXT) WHERE key = 'schema_version'")
        connection.close()

    with open_fast_lookup(str(path)) as look:
        assert look is None or look.held(HOME, DOWNLOAD, have) is None
