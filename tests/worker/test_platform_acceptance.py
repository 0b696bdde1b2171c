"""The fourth seed's acceptance criteria and rules, one test each, in its own words."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from longshore import compat
from longshore.depot import Depot
from longshore.depot.custom_jobs import Key
from longshore.domain.kinds import Status
from longshore.domain.model import Artifact, JobRequest, Scope
from longshore.domain.outcomes import Canceled, Deferred, Released
from tests.support.origin import Origin, Thing, status
from tests.worker import own_types  # noqa: F401 -- declares the types
from tests.worker.conftest import MakeDepot

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def database(depot: Depot) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(depot.ledger.backend.path))  # type: ignore[attr-defined]
    connection.set_busy_timeout(60_000)
    yield connection
    connection.close()


def put(depot: Depot, text: str = "hello") -> Artifact:
    got = depot.put(io.BytesIO(text.encode()), name="in.txt")
    assert got.artifact is not None
    return got.artifact


def one_of_each(depot: Depot, origin: Origin) -> dict[str, str]:
    """Run a job of every kind that needs no torrent client; give their ids."""
    source = put(depot)
    (got,) = depot.get([origin.add("/paper", Thing(b"a paper"))])
    done = {
        "download": got.job_id,
        "upload": source.created_by_job_id,
        "t_upper": depot.submit("t_upper", inputs=[source]).job_id,
        "t_async": depot.submit(
            "t_async", inputs=[source], params={"log": str(Path(depot.settings.depot, "log"))}
        ).job_id,
    }
    depot.run()
    return {kind: str(job_id) for kind, job_id in done.items()}


# P0


def test_every_job_has_a_single_canonical_record_with_status_and_results(depot: Depot, origin: Origin) -> None:
    jobs = one_of_each(depot, origin)
    with database(depot) as connection:
        rows = connection.execute("SELECT job_type, job_id, status FROM jobs ORDER BY job_type").fetchall()
    assert sorted(rows) == sorted((kind, job_id, "completed") for kind, job_id in jobs.items())
    for job_id in jobs.values():
        made = depot.ledger.results(depot.scope, job_id)
        assert made, "completed: result artifacts exist"
        assert all(one.created_by_job_id == job_id for one in made)


def test_every_job_and_artifact_is_namespaced_by_tenant_and_project(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(tenant="acme", project="papers")
    one_of_each(depot, origin)
    for artifact in depot.ledger.artifacts(depot.scope).items:
        assert artifact.pointer.startswith("acme/papers/")
    with database(depot) as connection:
        assert connection.execute("SELECT DISTINCT tenant_id, project_id FROM jobs").fetchall() == [("acme", "papers")]
        assert connection.execute("SELECT DISTINCT tenant_id, project_id FROM artifacts").fetchall() == [
            ("acme", "papers")
        ]
        for table in ("jobs", "artifacts"):
            columns = {row[1]: row for row in connection.execute(f"PRAGMA table_info({table})")}
            assert columns["tenant_id"][3], f"{table}.tenant_id may not be NULL"
            assert columns["project_id"][3], f"{table}.project_id may not be NULL"
    assert depot.ledger.jobs(Scope("acme", "other")).items == []


def test_no_result_is_only_in_memory_and_is_fetched_by_a_stable_id(make_depot: MakeDepot, origin: Origin) -> None:
    first = make_depot()
    jobs = one_of_each(first, origin)
    made = {job_id: [one.artifact_id for one in first.ledger.results(first.scope, job_id)] for job_id in jobs.values()}
    where = first.settings.depot
    first.close()
    code = (
        "import sys, longshore\n"
        "with longshore.open(sys.argv[1]) as depot:\n"
        "    for name in sys.argv[2:]:\n"
        "        one = depot.ledger.artifact(depot.scope, name)\n"
        "        with depot.store.open(depot.scope, one.pointer) as file: print(name, len(file.read()) == one.size_bytes)\n"
    )
    names = [name for ids in made.values() for name in ids]
    command = [sys.executable, "-c", code, str(where), *names]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, env={"PYTHONPATH": str(ROOT / "src")})
    assert told.stdout.splitlines() == [f"{name} True" for name in names], told.stderr


def test_every_status_change_has_its_event(depot: Depot, origin: Origin) -> None:
    """The database itself notes every change of a status; each has its event, or its row of job_claims."""
    with database(depot) as connection:
        connection.execute(
            "CREATE TABLE noted (job_id TEXT, before TEXT, after TEXT, epoch INTEGER, at INTEGER);"
            "CREATE TRIGGER note AFTER UPDATE OF status ON jobs WHEN OLD.status <> NEW.status BEGIN"
            " INSERT INTO noted VALUES (NEW.job_id, OLD.status, NEW.status, NEW.lease_epoch, NEW.updated_at); END"
        )
    one_of_each(depot, origin)
    depot.get([origin.add("/gone", status(404)), origin.add("/flaky", status(503), Thing(b"second try"))])
    depot.submit("t_bad", params={"how": "raise"})
    for key in (Key.DERIVED, "another name"):
        depot.submit("t_many", params={"size": 1}, key=key)
        depot.run()
    ledger, scope = depot.ledger, depot.scope
    ids = [one.job_id for one in ledger.plan(scope, [JobRequest("own", str(n)) for n in range(5)])]
    leases = ledger.claim("w", limit=5, ttl_s=0.000_001, job_ids=ids[:1], scope=scope)
    compat.cleanup_stale_leases(ledger)
    leases = ledger.claim("w", limit=5, ttl_s=60, job_ids=ids[1:4], scope=scope)
    ledger.settle(list(zip(leases, [Deferred("connect", "later", 60.0), Released(), Canceled()], strict=True)))
    ledger.cancel(scope, ids[4:])
    with database(depot) as connection:
        changes = connection.execute("SELECT job_id, before, after, epoch, at FROM noted").fetchall()
        events = connection.execute("SELECT job_id, kind, at FROM events").fetchall()
        claims = set(connection.execute("SELECT job_id, epoch FROM job_claims"))
        connection.execute("DROP TRIGGER note; DROP TABLE noted")
    words = {"completed": {"completed"}, "failed": {"failed"}, "skipped": {"skipped"}, "canceled": {"canceled"}}
    words["pending"] = {"deferred", "released", "lease_expired", "lease_dead"}
    assert {after for _, _, after, _, _ in changes} == {"processing", *words}
    for job_id, before, after, epoch, at in changes:
        if after == "processing":
            assert (job_id, epoch) in claims
        else:
            told = [kind for of, kind, when in events if of == job_id and when == at]
            assert words[str(after)] & {str(kind) for kind in told}, f"{before} to {after} of {job_id}: {told}"


# P1


def test_idempotency_keys_are_deterministic_and_a_pending_request_gets_the_same_job(depot: Depot) -> None:
    source = put(depot)
    first = depot.submit("t_upper", inputs=[source], params={"end": "!"})
    again = depot.submit("t_upper", inputs=[source], params={"end": "!"})
    assert (again.job_id, again.created, again.status) == (first.job_id, False, Status.PENDING)


def test_a_completed_job_with_the_same_key_answers_with_its_results(depot: Depot) -> None:
    source = put(depot)
    first = depot.submit("t_upper", inputs=[source])
    depot.run()
    again = depot.submit("t_upper", inputs=[source])
    assert (again.job_id, again.created, again.status) == (first.job_id, False, Status.COMPLETED)
    named = depot.submit("t_upper", inputs=[source], key="by another name")
    depot.run()
    skipped = depot.ledger.job(depot.scope, named.job_id)
    assert (skipped.status, skipped.reuse_of_job_id) == (Status.SKIPPED, first.job_id)


def test_a_job_is_run_again_from_artifacts_without_another_upload(depot: Depot) -> None:
    source = put(depot)
    first = depot.submit("t_upper", inputs=[source])
    depot.run()
    again = depot.replay(first.job_id)
    depot.run()
    job = depot.ledger.job(depot.scope, again.job_id)
    assert (job.status, job.retry_of) == (Status.COMPLETED, first.job_id)
    assert [one.artifact_id for one in depot.ledger.results(depot.scope, again.job_id, role="input")] == [
        source.artifact_id
    ]


# P2


def test_an_artifact_is_immutable_and_a_new_version_is_linked_to_the_old(depot: Depot, origin: Origin) -> None:
    url = origin.add("/changing", Thing(b"one", etag='"1"'), Thing(b"two", etag='"2"'))
    (first,) = depot.get([url])
    (second,) = depot.get([url], refresh=True)
    assert first.artifact is not None
    assert second.artifact is not None
    assert second.artifact.artifact_id != first.artifact.artifact_id
    assert second.artifact.previous_id == first.artifact.artifact_id
    with database(depot) as connection:
        for column in ("sha256", "storage_pointer", "byte_size", "artifact_type", "created_by_job_id", "content_type"):
            with pytest.raises(apsw.ConstraintError, match="does not change"):
                connection.execute(f"UPDATE artifacts SET {column} = {column}")
    assert first.path is not None
    assert not first.path.stat().st_mode & 0o222, "and its file is read-only"


def test_errors_are_safe_and_correlated(depot: Depot) -> None:
    planned = depot.submit("t_bad", params={"how": "raise"})
    depot.run()
    job = depot.ledger.job(depot.scope, planned.job_id)
    assert job.debug_id
    assert job.message is not None
    assert job.debug_id in job.message
    assert "secret-canary" not in job.message
    assert [group.reason for group in depot.ledger.failures(depot.scope)] == ["handler_error"], "the dead-letter list"
    (again,) = depot.ledger.retry(depot.scope, [planned.job_id])
    assert again.created
    assert depot.ledger.job(depot.scope, again.job_id).retry_of == planned.job_id
