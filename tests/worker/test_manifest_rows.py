"""What the manifest tells of a job: the same fields whatever became of it."""

from __future__ import annotations

import csv
import io
from typing import Any

import pyarrow.parquet as pq

from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from longshore.exports import manifest
from longshore.exports.manifest_rows import TELEMETRY, ManifestRow, as_dict
from longshore.exports.read_ledger import manifest_rows
from tests.support.origin import Origin, Thing, cut, redirect, stamped, status
from tests.worker.conftest import MakeDepot

DAY = "Mon, 02 Jan 2006 15:04:05 GMT"


def rows_of(depot: Depot) -> dict[str, ManifestRow]:
    """The rows of a depot by the last part of their URL, or by their status for a second job of a URL."""
    found: dict[str, ManifestRow] = {}
    for row in manifest_rows(depot.ledger, depot.scope):
        name = str(row.url).rpartition("/")[2]
        found[name if name not in found else row.status] = row
    return found


def test_every_outcome_has_the_same_fields(make_depot: MakeDepot, origin: Origin, engine: str, where: str) -> None:
    depot = make_depot(ledger=where, quota={"tenant_bytes": 3_000_000}, transfer={"segments": 1})
    body = Thing(stamped(1, 2_000_000), etag='"v1"', last_modified=DAY)
    there = origin.add("/there", body)
    moved = origin.add("/moved", redirect(f"{there}?token=secret-of-the-origin"))
    origin.add("/there?token=secret-of-the-origin", body)
    large = origin.add("/large", Thing(stamped(2, 2_000_000)))
    gone = origin.add("/gone", status(404, etag='"none"'))
    depot.add([download_request(url, run_id="r") for url in (moved, gone)])
    depot.run()
    depot.get([download_request(moved, work_id="w", artifact_id="a"), large])
    rows = rows_of(depot)
    assert {row.status for row in rows.values()} == {"completed", "skipped", "failed"}
    shapes = {(tuple(line), tuple(line["facts"])) for line in map(as_dict, rows.values())}
    assert len(shapes) == 1, shapes
    for row in (rows["moved"], rows["skipped"]):
        assert (row.etag, row.last_modified, row.host) == ('"v1"', DAY, origin.netloc)
        assert row.final_url is not None
        assert row.final_url.startswith(there)
        assert "secret" not in row.final_url
    assert (rows["moved"].run_id, rows["skipped"].run_id) == ("r", None)
    assert (rows["moved"].tenant_id, rows["moved"].project_id, rows["moved"].attempts) == (*depot.scope, 1)
    missing, refused = rows["gone"], rows["large"]
    assert (missing.reason, missing.facts["status"], missing.final_url) == ("http_404", 404, gone)
    assert (refused.reason, refused.facts["quota_decision"]) == ("quota_exceeded", "quota_exceeded")
    assert refused.facts["quota_need"] >= 2_000_000
    assert refused.facts["quota_tenant_left"] < 2_000_000


def test_telemetry_has_columns(make_depot: MakeDepot, origin: Origin, tmp_path: Any) -> None:
    depot = make_depot()
    thing = Thing(stamped(1, 2_000_000))
    depot.get([origin.add("/cut", cut(thing, 1_500_000), thing), origin.add("/gone", status(404))])
    out = io.BytesIO()
    manifest.write_csv(manifest_rows(depot.ledger, depot.scope), out)
    whole, gone = csv.DictReader(io.StringIO(out.getvalue().decode()))
    assert (whole["resume_decision"], whole["dedupe_action"], whole["http_status"]) == ("resume", "download", "206")
    assert int(whole["stream_bytes"]) + int(whole["resumed_from_bytes"]) == 2_000_000
    assert float(whole["fsync_ms"]) >= 0
    assert (gone["http_status"], gone["fsync_ms"], gone["status"]) == ("404", "", "failed")
    with open(tmp_path / "m.parquet", "wb") as file:
        manifest.write_parquet(manifest_rows(depot.ledger, depot.scope), file)
    table = pq.read_table(tmp_path / "m.parquet")
    assert set(TELEMETRY) <= set(table.column_names)
    assert table.column("stream_bytes")[0].as_py() == int(whole["stream_bytes"])
    assert table.column("fsync_ms")[1].as_py() is None


def test_a_full_disk_is_refused_with_its_figures(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(quota={"free_bytes_min": 0, "margin_factor": 1e9})
    depot.add([origin.add("/a", Thing(stamped(1, 2_000_000)))])
    depot.run(max_wait_s=0.5)
    (row,) = manifest_rows(depot.ledger, depot.scope)
    (job,) = depot.jobs()
    deferred = [event.facts for event in depot.show(job.job_id).events if event.kind in ("deferred", "failed")]
    assert deferred[-1]["quota_decision"] in ("disk_full", "too_large")
    assert deferred[-1]["quota_need"] > deferred[-1]["quota_start_free"] > 0
    assert row.reason in ("disk_full", "too_large")
