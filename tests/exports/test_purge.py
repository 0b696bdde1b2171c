"""Purge: archived first, forgotten then, and the key still answers. Nothing that is used or not yet run goes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from longshore import failpoints
from longshore.checker import check
from longshore.checker.check import LocalFiles
from longshore.depot.maintenance import purge
from longshore.domain.identity.requests import download_request
from longshore.domain.model import SECOND, Scope, Status
from longshore.exports.read_ledger import manifest_rows
from longshore.ledger import Ledger
from tests.checker.conftest import CheckedDepot
from tests.checker.conftest import runtime as runtime  # noqa: PLC0414 - the fixture

SCOPE = Scope()


def later(ledger: Ledger) -> int:
    return ledger.now() + SECOND


def test_only_what_is_over_and_unused_is_forgotten(runtime: CheckedDepot, tmp_path: Path) -> None:
    with Ledger.open(runtime.ledger) as ledger:
        before = {row.job_id: row for row in manifest_rows(ledger, SCOPE)}
        done = purge.retire(ledger, SCOPE, before=later(ledger), target=tmp_path / "archive")
        left = {row.job_id: row for row in manifest_rows(ledger, SCOPE)}
        gone = {before[job_id].status for job_id in before.keys() - left.keys()}
        assert gone == {"failed", "skipped"}
        assert {row.status for row in left.values()} == {"completed", "pending"}
        assert done.jobs == 2
        assert sum(ledger.counts(SCOPE).values()) == len(left)
    assert check(str(runtime.ledger), LocalFiles(runtime.store)).findings == []


def test_the_archive_reads_back_equal(runtime: CheckedDepot, tmp_path: Path) -> None:
    with Ledger.open(runtime.ledger) as ledger:
        before = {row.job_id: row for row in manifest_rows(ledger, SCOPE)}
        done = purge.retire(ledger, SCOPE, before=later(ledger), target=tmp_path / "archive")
    read = [row for path in done.files for row in pq.read_table(path).to_pylist()]
    assert len(read) == 2
    for row in read:
        assert (row["url"], row["status"], row["reason"]) == (
            before[row["job_id"]].url,
            before[row["job_id"]].status,
            before[row["job_id"]].reason,
        )


def test_planning_again_returns_what_was_forgotten(runtime: CheckedDepot, tmp_path: Path) -> None:
    """A skipped job's tombstone answers: nothing is fetched again. A failed one's too, unless asked for again."""
    with Ledger.open(runtime.ledger) as ledger:
        before = {row.job_id: row for row in manifest_rows(ledger, SCOPE)}
        purge.retire(ledger, SCOPE, before=later(ledger), target=tmp_path / "archive")
        for job_id, row in before.items():
            assert row.url is not None
            (planned,) = ledger.plan(SCOPE, [download_request(row.url)])
            assert (planned.job_id, planned.created, planned.status) == (job_id, False, Status(row.status))
        failed = next(row for row in before.values() if row.status == "failed")
        assert failed.url is not None
        (again,) = ledger.plan(SCOPE, [download_request(failed.url)], again="failed")
        assert again.created


def test_nothing_young_goes(runtime: CheckedDepot, tmp_path: Path) -> None:
    with Ledger.open(runtime.ledger) as ledger:
        done = purge.retire(ledger, SCOPE, before=ledger.now() - 3600 * SECOND, target=tmp_path / "archive")
    assert done.jobs == 0
    assert not (tmp_path / "archive").exists()


def test_a_dry_run_changes_nothing(runtime: CheckedDepot, tmp_path: Path) -> None:
    with Ledger.open(runtime.ledger) as ledger:
        before = list(manifest_rows(ledger, SCOPE))
        done = purge.retire(ledger, SCOPE, before=later(ledger), target=tmp_path / "archive", dry_run=True)
        assert done.jobs == 2
        assert list(manifest_rows(ledger, SCOPE)) == before


@pytest.mark.parametrize("point", ["purge.archive", "purge.archived", "purge.delete"])
def test_a_crash_loses_nothing_and_the_next_purge_finishes(runtime: CheckedDepot, tmp_path: Path, point: str) -> None:
    with Ledger.open(runtime.ledger) as ledger:
        before = {row.job_id for row in manifest_rows(ledger, SCOPE)}
        when = later(ledger)
        failpoints.arm(f"{point}=raise")
        try:
            with pytest.raises(OSError, match=point):
                purge.retire(ledger, SCOPE, before=when, target=tmp_path / "archive")
        finally:
            failpoints.arm("")
        assert {row.job_id for row in manifest_rows(ledger, SCOPE)} == before
        purge.retire(ledger, SCOPE, before=when, target=tmp_path / "archive")
        archived = {
            row["job_id"]
            for path in (tmp_path / "archive").glob("*.parquet")
            for row in pq.read_table(path).to_pylist()
        }
        assert archived == before - {row.job_id for row in manifest_rows(ledger, SCOPE)}
    assert check(str(runtime.ledger), LocalFiles(runtime.store)).findings == []
