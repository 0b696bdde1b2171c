"""Deletion: rows first, bytes second; nothing that is still referred to, whatever kills the process in between."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longshore import ArtifactFilter, Scope
from longshore.checker import check
from longshore.checker.check import LocalFiles
from longshore.config import load_settings
from longshore.depot import Depot
from longshore.depot.maintenance import deletion
from longshore.depot.maintenance.deletion import Chosen, chosen_artifacts, free_deleted, ids_and_bytes
from longshore.depot.maintenance.retention import DAY, Retention
from longshore.domain.kinds import Status
from longshore.domain.model import JobRequest
from longshore.domain.settings import RetentionSettings
from longshore.errors import NotFound
from longshore.ledger.operations.audit_log import audit_entries
from longshore.ledger.operations.deleting import By, delete_artifacts, unfreed
from tests.support.origin import Origin, Thing
from tests.worker import own_types  # noqa: F401 -- declares the types
from tests.worker.conftest import MakeDepot, engine, make_depot, origin, postgres_cluster, where

__all__ = ["engine", "make_depot", "origin", "postgres_cluster", "where"]
ROOT = Path(__file__).resolve().parents[2]
BY = By("test", why="asked to")


@pytest.fixture
def depot(make_depot: MakeDepot, where: str) -> Depot:
    return make_depot(ledger=where)


def put(depot: Depot, body: bytes, **given: Any) -> str:
    artifact = depot.put(io.BytesIO(body), name="a.txt", **given).artifact
    assert artifact is not None
    return artifact.artifact_id


def files(depot: Depot) -> list[Path]:
    store = Path(depot.settings.depot, "store")
    return sorted(path for path in store.rglob("*") if path.is_file() and len(path.stem) == 64)


def held(depot: Depot) -> tuple[int, int]:
    """What the tenant's budget counts."""
    _, usage = depot.ledger.budget(depot.scope.tenant_id)
    return usage.items, usage.bytes


def test_an_artifact_goes_with_its_bytes_and_leaves_a_tombstone(depot: Depot) -> None:
    gone, kept = put(depot, b"secret words"), put(depot, b"others")
    (path,) = [one for one in files(depot) if one.read_bytes() == b"secret words"]
    done = depot.delete(gone, why="asked to")
    assert (done.artifact_ids, done.bytes, done.unknown) == ([gone], 12, [])
    assert not path.exists()
    assert [one.artifact_id for one in depot.artifacts()] == [kept]
    assert held(depot) == (1, 6)
    with pytest.raises(NotFound):
        depot.ledger.artifact(depot.scope, gone)
    (line,) = depot.ledger.read(audit_entries, depot.scope)
    assert (line.token_id, line.action, line.detail["why"]) == ("python", "delete artifacts", "asked to")
    assert depot.ledger.read(unfreed, depot.scope, 9) == []
    assert depot.verify().findings == []
    assert depot.delete([gone, "no-such-id"]).unknown == [gone, "no-such-id"]


def test_bytes_that_another_artifact_has_stay(depot: Depot, origin: Origin) -> None:
    first = depot.get([origin.add("/a", Thing(b"the same"))])[0].artifact
    second = depot.get([origin.add("/b", Thing(b"the same"))])[0].artifact
    assert first is not None
    assert second is not None
    assert depot.delete(first.artifact_id).bytes == 0
    assert [path.read_bytes() for path in files(depot)] == [b"the same"]
    assert depot.delete(second.artifact_id).bytes == 8
    assert files(depot) == []


def test_asking_again_for_what_was_deleted_is_a_new_job(depot: Depot, origin: Origin) -> None:
    url = origin.add("/a", Thing(b"one", etag='"1"'))
    (got,) = depot.get([url])
    assert got.artifact is not None
    depot.delete(got.artifact.artifact_id)
    (again,) = depot.get([url])
    assert (again.ok, again.job_id != got.job_id, origin.count("/a")) == (True, True, 2)
    assert (depot.get([url])[0].job_id, origin.count("/a")) == (again.job_id, 2)
    upload = depot.put(io.BytesIO(b"up"), name="u")
    assert upload.artifact is not None
    depot.delete(upload.artifact.artifact_id)
    assert depot.put(io.BytesIO(b"up"), name="u").job_id != upload.job_id
    events = [one for one in depot.show(got.job_id).events if one.kind == "artifact_deleted"]
    assert [one.facts["artifact"] for one in events] == [got.artifact.artifact_id]
    assert depot.verify().findings == []


def test_an_input_of_an_unfinished_job_stays(depot: Depot) -> None:
    source = put(depot, b"hello")
    planned = depot.submit("t_upper", inputs=[source])
    assert depot.delete(source).used == {source: planned.job_id}
    depot.run()
    done = depot.delete(ArtifactFilter(artifact_type="text"))
    assert len(done.artifact_ids) == 1
    assert depot.delete(source).artifact_ids == [source]
    assert depot.submit("t_upper", inputs=[put(depot, b"hello")]).created


def test_only_what_matches_in_its_own_project_goes(depot: Depot) -> None:
    wanted = [put(depot, bytes([n]), artifact_type="old") for n in range(5)]
    put(depot, b"new", artifact_type="new")
    other = depot.put(io.BytesIO(b"x"), name="x", artifact_type="old", scope=Scope("other", "p")).artifact
    assert other is not None
    assert depot.delete(other.artifact_id).unknown == [other.artifact_id]
    assert sorted(depot.delete(ArtifactFilter(artifact_type="old")).artifact_ids) == sorted(wanted)
    assert len(depot.artifacts()) == 1
    assert len(depot.artifacts(scope=Scope("other", "p"))) == 1


def test_a_filter_finds_more_than_a_page_and_what_is_older(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "PAGE", 2)
    monkeypatch.setattr(deletion, "BATCH", 2)
    ids = [put(depot, bytes([n])) for n in range(5)]
    chosen = Chosen(wanted=ArtifactFilter(artifact_type="raw_upload"), before=depot.ledger.now() + 10_000_000)
    assert sorted(ids_and_bytes(chosen_artifacts(depot.ledger, depot.scope, chosen))[0]) == sorted(ids)
    none = Chosen(wanted=ArtifactFilter(artifact_type="raw_upload"), before=depot.ledger.now() - 60_000_000)
    assert list(chosen_artifacts(depot.ledger, depot.scope, none)) == []
    assert len(depot.delete(ids).artifact_ids) == 5
    assert files(depot) == []


def test_bytes_that_were_stored_again_meanwhile_stay(depot: Depot) -> None:
    gone = put(depot, b"again")
    depot.ledger.write(delete_artifacts, depot.scope, [gone], BY)
    anew = put(depot, b"again")
    assert free_deleted(depot.ledger, depot.store, depot.scope) == []
    assert [path.read_bytes() for path in files(depot)] == [b"again"]
    assert depot.ledger.artifact(depot.scope, anew).availability == "available"
    assert depot.verify().findings == []


def test_retention_deletes_the_artifacts_of_a_type(depot: Depot, tmp_path: Path) -> None:
    put(depot, b"audio", artifact_type="recording")
    kept = put(depot, b"words", artifact_type="transcript")
    settings = RetentionSettings(artifact_days={"recording": 30.0})
    retention = Retention(depot.ledger, depot.store, settings, tmp_path)
    assert retention.enforce(depot.ledger.now()).artifacts == 0
    assert retention.enforce(depot.ledger.now() + 31 * DAY).artifacts == 1
    assert [one.artifact_id for one in depot.artifacts()] == [kept]
    assert [path.read_bytes() for path in files(depot)] == [b"words"]


def test_the_retention_of_types_is_a_setting(tmp_path: Path) -> None:
    environ = {"LONGSHORE_RETENTION__ARTIFACT_DAYS": '{"recording": 30}'}
    assert load_settings(tmp_path, environ=environ).retention.artifact_days == {"recording": 30.0}


POINTS = ["delete.rows", "delete.quarantined", "delete.removed", "delete.freed", "ledger.commit", "ledger.committed"]
WORKER = """
import sys
from longshore.depot import Depot
from longshore.config import load_settings
with Depot(settings=load_settings(sys.argv[1], environ={})) as depot:
    from longshore import failpoints
    failpoints.arm(sys.argv[2])
    depot.delete(sys.argv[3:])
"""


@pytest.mark.parametrize("point", POINTS)
def test_a_deletion_that_is_killed_is_finished_by_reconcile(tmp_path: Path, point: str) -> None:
    """Row first, file second: no artifact without bytes at any moment, no bytes left at the end."""
    settings = load_settings(tmp_path / "depot", environ={})
    with Depot(settings=settings) as depot:
        ids = [put(depot, bytes([n]) * 9) for n in range(3)]
    command = [sys.executable, "-c", WORKER, str(tmp_path / "depot"), f"{point}=kill", *ids[:2]]
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, timeout=60)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    left = check(str(tmp_path / "depot/ledger.db"), LocalFiles(tmp_path / "depot/store"))
    assert left.damage == []
    with Depot(settings=settings) as depot:
        assert depot.verify().findings == []
        there = {one.artifact_id for one in depot.artifacts()}
        depot.reconcile()
        assert {one.artifact_id for one in depot.artifacts()} == there
        assert len(files(depot)) == len(there)
        depot.delete([one for one in ids[:2] if one in there])
        assert len(files(depot)) == 1
        assert list(depot.store.quarantined()) == []
    assert check(str(tmp_path / "depot/ledger.db"), LocalFiles(tmp_path / "depot/store")).findings == []


def test_a_purged_key_forgets_the_deleted_artifact(depot: Depot) -> None:
    """Jobs of which nothing remains are planned anew."""
    planned = depot.ledger.plan(depot.scope, [JobRequest("t_many", "k", params={"size": 1})])[0]
    depot.run()
    results = [one.artifact_id for one in depot.ledger.results(depot.scope, planned.job_id)]
    assert len(depot.delete(results).artifact_ids) == 3
    assert depot.ledger.job(depot.scope, planned.job_id).status is Status.COMPLETED
    assert depot.ledger.plan(depot.scope, [JobRequest("t_many", "k", params={"size": 1})])[0].created
