"""The history of completed jobs can be archived while their artifacts live on: what is told of them stays the same."""

from __future__ import annotations

from pathlib import Path

import apsw
import pyarrow.parquet as pq
import pytest

from longshore import failpoints
from longshore.checker import check
from longshore.checker.check import LocalFiles
from longshore.depot.maintenance import purge
from longshore.domain.identity.requests import download_request
from longshore.domain.model import Status
from longshore.exports.read_ledger import manifest_rows
from longshore.ledger import Ledger
from longshore.ledger.queries.history import provenance, timeline
from tests.checker.conftest import SCOPE as CHECKED
from tests.checker.conftest import CheckedDepot
from tests.checker.conftest import runtime as runtime  # noqa: PLC0414 - the fixture
from tests.exports.test_purge import later
from tests.exports.test_retention import SCOPE, complete, keeper, plan, urls
from tests.support.ledgers import Clock

DAY_S = 86_400.0


def completed(ledger: Ledger) -> list[str]:
    return [row.job_id for row in manifest_rows(ledger, SCOPE) if row.status == "completed"]


def test_what_is_told_of_an_archived_job_stays_the_same(ledger: Ledger, clock: Clock, tmp_path: Path) -> None:
    old = plan(ledger, urls(0, 12))
    complete(ledger, old)
    clock.sleep(40 * DAY_S)
    young = plan(ledger, urls(100, 2))
    complete(ledger, young)
    rows = list(manifest_rows(ledger, SCOPE))
    links = {row.artifact_id: ledger.read(provenance, SCOPE, str(row.artifact_id)) for row in rows}
    done = keeper(ledger, tmp_path, completed_days=30).enforce(ledger.now())
    assert (done.jobs, done.histories) == (0, 12)
    assert list(manifest_rows(ledger, SCOPE)) == rows
    assert {name: ledger.read(provenance, SCOPE, str(name)) for name in links} == links
    past = ledger.read(timeline, SCOPE, old[0])
    assert ([event.kind for event in past.events], past.claims, past.effects) == (["planned", "completed"], [], [])
    assert len(ledger.read(timeline, SCOPE, young[0]).claims) == 1
    [table] = [pq.read_table(path) for path in (tmp_path / "archive").glob("*-history.parquet")]
    assert sorted(row["job_id"] for row in table.to_pylist()) == sorted(old)
    again = ledger.plan(SCOPE, [download_request(url) for url in urls(0, 12)])
    assert [(one.job_id, one.created, one.status) for one in again] == [(name, False, Status.COMPLETED) for name in old]
    assert keeper(ledger, tmp_path, completed_days=30).enforce(ledger.now()).histories == 0, "once is enough"


def test_by_default_no_history_goes(ledger: Ledger, clock: Clock, tmp_path: Path) -> None:
    complete(ledger, plan(ledger, urls(0, 3)))
    clock.sleep(400 * DAY_S)
    assert keeper(ledger, tmp_path).enforce(ledger.now()).histories == 0


def test_a_sound_depot_stays_sound_and_own_tables_keep_their_rows(runtime: CheckedDepot, tmp_path: Path) -> None:
    connection = apsw.Connection(str(runtime.ledger))
    connection.execute(
        "CREATE TABLE transcripts (tenant_id, project_id, job_id, FOREIGN KEY (tenant_id, project_id, job_id)"
        " REFERENCES jobs (tenant_id, project_id, job_id) ON DELETE CASCADE);"
        "INSERT INTO transcripts SELECT tenant_id, project_id, job_id FROM jobs WHERE status = 'completed'"
    )
    with Ledger.open(runtime.ledger) as ledger:
        before = list(manifest_rows(ledger, CHECKED))
        done = purge.retire_history(ledger, CHECKED, before=later(ledger), target=tmp_path / "archive")
        assert done.jobs == 3
        assert list(manifest_rows(ledger, CHECKED)) == before
    assert connection.execute("SELECT count(*) FROM transcripts").fetchone() == (3,)
    connection.close()
    assert check(str(runtime.ledger), LocalFiles(runtime.store)).findings == []


@pytest.mark.parametrize("point", ["purge.archive", "purge.archived", "purge.history"])
def test_a_crash_loses_no_history_and_the_next_purge_finishes(
    runtime: CheckedDepot, tmp_path: Path, point: str
) -> None:
    with Ledger.open(runtime.ledger) as ledger:
        before = list(manifest_rows(ledger, CHECKED))
        failpoints.arm(f"{point}=raise")
        try:
            with pytest.raises(OSError, match=point):
                purge.retire_history(ledger, CHECKED, before=later(ledger), target=tmp_path / "archive")
        finally:
            failpoints.arm("")
        assert all(
            len(ledger.read(timeline, CHECKED, row.job_id).claims) == 1 for row in before if row.status == "completed"
        )
        done = purge.retire_history(ledger, CHECKED, before=later(ledger), target=tmp_path / "archive")
        assert done.jobs == 3
        assert list(manifest_rows(ledger, CHECKED)) == before
    assert check(str(runtime.ledger), LocalFiles(runtime.store)).findings == []
