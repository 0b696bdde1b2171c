"""Jobs of one's own as a platform needs them, on both engines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import longshore
from longshore import ArtifactFilter, JobFailed, JobFilter, JobRequest, Scope
from longshore.depot import Depot
from longshore.domain.kinds import Status
from longshore.domain.outcomes import Completed
from longshore.errors import BadInput, HookFailed
from tests.support.origin import Origin, status
from tests.worker import platform_types
from tests.worker.conftest import MakeDepot


@pytest.fixture
def depot(make_depot: MakeDepot, where: str) -> Depot:
    return make_depot(ledger=where)


def rows(where: str, text: str, tenant: str = "default") -> list[Any]:
    if where.startswith("postgres"):
        with psycopg.connect(where) as connection:
            connection.execute("SELECT set_config('longshore.tenant', %s, false)", (tenant,))
            connection.execute("SET ROLE longshore_app")
            return connection.execute(text.encode()).fetchall()
    file = apsw.Connection(where)
    file.set_busy_timeout(10_000)
    return file.execute(text).fetchall()


@pytest.fixture
def transcripts(where: str) -> Iterator[str]:
    """A table of the user's own."""
    if where.startswith("postgres"):
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(platform_types.TABLES.encode())
            connection.execute("SELECT protect_table('transcripts')")
            yield where
            connection.execute("DROP TABLE transcripts")
        return
    file = apsw.Connection(where)
    file.execute(platform_types.TABLES)
    file.close()
    yield where


def value(depot: Depot, job_id: str) -> Any:
    (made,) = depot.ledger.results(depot.scope, job_id)
    with depot.store.open(depot.scope, made.pointer) as file:
        return json.load(file)


def test_a_job_without_a_key_runs_each_time(depot: Depot) -> None:
    first = depot.submit("p_echo", params={"n": 1})
    depot.run()
    again = [depot.submit("p_echo", params={"n": 1}, key=None) for _ in range(2)]
    assert all(one.created for one in again)
    assert len({first.job_id, *(one.job_id for one in again)}) == 3
    result = depot.run()
    assert (result.completed, result.reused) == (2, 0)
    assert all(depot.ledger.job(depot.scope, one.job_id).status is Status.COMPLETED for one in again)
    assert not depot.submit("p_echo", params={"n": 1}).created
    planned = depot.ledger.plan(depot.scope, [JobRequest("p_echo", None, params={"n": 1})] * 2)
    assert len({one.job_id for one in planned}) == 2
    assert depot.run().completed == 2


def test_a_float_is_kept_exactly_and_is_part_of_the_key(depot: Depot) -> None:
    numbers = [0.1, 1e-300, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, -2.5]
    planned = depot.submit("p_echo", params={"numbers": numbers, "deep": {"temperature": 0.2}})
    assert not depot.submit("p_echo", params={"deep": {"temperature": 0.2}, "numbers": numbers}).created
    assert depot.submit("p_echo", params={"numbers": numbers, "deep": {"temperature": 0.25}}).created
    named = depot.submit("p_echo", params={"temperature": 0.7}, key="mine")
    assert depot.run().completed == 3
    assert value(depot, planned.job_id)["params"] == {"numbers": numbers, "deep": {"temperature": 0.2}}
    assert value(depot, named.job_id)["params"] == {"temperature": 0.7}
    assert depot.submit("p_echo", params={"n": 1}).job_id == depot.submit("p_echo", params={"n": 1.0}).job_id


@pytest.mark.parametrize("key", ["mine", None])
@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"a": {"b": [1, float("nan")]}}, r"params\.a\.b\[1\] is nan"),
        ({"a": float("-inf")}, r"params\.a is -inf"),
        ({"a": [b"x"]}, r"params\.a\[0\] is a bytes"),
        ({"a": "e\u0301"}, r"params\.a is not in Unicode normal form C"),
        ({"a": {1: 2}}, r"a name in params\.a must be text"),
    ],
)
def test_a_parameter_that_cannot_be_kept_is_refused_when_it_is_planned(
    depot: Depot, params: dict[str, Any], path: str, key: str | None
) -> None:
    with pytest.raises(BadInput, match=path):
        depot.submit("p_echo", params=params, key=key)
    with pytest.raises(BadInput, match=path):
        depot.ledger.plan(depot.scope, [JobRequest("p_echo", key, params=params)])
    assert depot.jobs() == []


@pytest.mark.parametrize(("retryable", "attempts"), [(True, 2), (False, 1)])
def test_a_handler_fails_with_a_code_of_its_own(depot: Depot, retryable: bool, attempts: int) -> None:
    planned = depot.submit("p_fail", params={"code": "model.busy", "retryable": retryable})
    depot.run()
    job = depot.ledger.job(depot.scope, planned.job_id)
    assert (job.status, job.reason, job.attempts) == (Status.FAILED, "model.busy", attempts)
    assert str(job.message).startswith("the model is busy")
    (group,) = depot.failures()
    assert (group.reason, group.count) == ("model.busy", 1)
    assert [one.job_id for one in depot.jobs(JobFilter(reason="model.busy"))] == [planned.job_id]


def test_a_retry_replaces_a_failed_job_without_a_key(depot: Depot) -> None:
    planned = depot.submit("p_fail", params={"code": "model.busy", "retryable": False}, key=None)
    depot.run()
    (again,) = depot.retry([planned.job_id])
    assert (again.created, depot.failures()) == (True, [])
    depot.run()
    (group,) = depot.failures()
    assert (group.count, group.sample_job_id) == (1, again.job_id)
    assert depot.retry([planned.job_id]) == [], "it was tried again already"


@pytest.mark.parametrize("code", ["http_404", "Model Busy", "", "a" * 65, "digest_mismatch", "a..b", "x\n", 7])
def test_a_code_that_is_not_one_s_own_is_refused(code: Any) -> None:
    with pytest.raises(BadInput):
        JobFailed("no", code=code)


def test_an_unknown_reason_of_a_download_is_still_refused(depot: Depot, origin: Origin) -> None:
    depot.add([origin.add("/gone", status(404))])
    (lease,) = depot.ledger.claim("w", limit=1, ttl_s=60)
    from longshore import compat

    with pytest.raises(BadInput, match="unknown reason"):
        compat.fail(depot.ledger, lease, "model.busy", "no")


def test_a_handler_knows_its_job_and_its_inputs(depot: Depot, transcripts: str) -> None:
    scope = Scope("acme", "calls")
    made = depot.submit("p_transcribe", params={"id": "t1"}, scope=scope)
    depot.run()
    (transcript,) = depot.ledger.results(scope, made.job_id)
    asked = [
        depot.ledger.plan(
            scope, [JobRequest(kind, None, inputs=(transcript.artifact_id,), run_id="run-7", request_id="req-9")]
        )[0].job_id
        for kind in ("p_echo", "p_async_echo")
    ]
    assert depot.run().completed == 2
    for job_id in asked:
        (result,) = depot.ledger.results(scope, job_id)
        with depot.store.open(scope, result.pointer) as file:
            told = json.load(file)
        assert told["job"] == ["acme", "calls", job_id, "run-7", "req-9", 1]
        ((schema_version, metadata),) = told["inputs"]
        assert (schema_version, metadata["transcript_id"]) == ("2.0", "t1")


def test_a_type_may_require_results(depot: Depot) -> None:
    planned = depot.submit("p_none")
    depot.run()
    job = depot.ledger.job(depot.scope, planned.job_id)
    assert (job.status, job.reason) == (Status.FAILED, "bad_result")
    assert "no result" in str(job.message)
    depot.submit("p_none", params={"value": {"is": "there"}})
    assert depot.run().completed == 1


def test_every_failure_has_a_debug_id_that_is_in_the_log(
    depot: Depot, origin: Origin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "longshore")
    depot.add([origin.add("/gone", status(404))])
    depot.submit("p_fail", params={"code": None, "retryable": False})
    depot.submit("p_none")
    depot.run()
    failed = depot.jobs(JobFilter(status=Status.FAILED))
    assert {job.reason for job in failed} == {"http_404", "handler_error", "bad_result"}
    for job in failed:
        assert job.debug_id
        (line,) = [one.getMessage() for one in caplog.records if f"debug id {job.debug_id}" in one.getMessage()]
        assert job.job_id in line
        (event,) = [one for one in depot.show(job.job_id).events if one.kind == "failed"]
        assert event.facts["debug_id"] == job.debug_id


def test_own_tables_are_written_with_the_completion(depot: Depot, transcripts: str) -> None:
    planned = [depot.submit("p_transcribe", params={"id": f"t{n}"}) for n in range(3)]
    assert depot.run().completed == 3
    found = rows(transcripts, "SELECT transcript_id, job_id, artifact_id FROM transcripts ORDER BY transcript_id")
    wanted = [
        (f"t{n}", one.job_id, depot.ledger.results(depot.scope, one.job_id)[0].artifact_id)
        for n, one in enumerate(planned)
    ]
    assert [tuple(row) for row in found] == wanted


def test_a_hook_that_raises_undoes_its_job_alone(
    depot: Depot, transcripts: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad = depot.submit("p_transcribe", params={"id": "bad", "raise": 1})
    depot.submit("p_transcribe", params={"id": "good"})
    other = depot.submit("p_echo")
    depot.run()
    job = depot.ledger.job(depot.scope, bad.job_id)
    assert (job.status, job.reason, job.attempts) == (Status.FAILED, "handler_error", 2)
    assert "secret-canary" not in str(job.message)
    assert job.debug_id
    assert job.debug_id in caplog.text
    assert "secret-canary" in caplog.text
    assert depot.ledger.job(depot.scope, other.job_id).status is Status.COMPLETED
    assert depot.ledger.results(depot.scope, bad.job_id) == []
    assert [tuple(row) for row in rows(transcripts, "SELECT transcript_id FROM transcripts")] == [("good",)]
    assert depot.verify().findings == []


def test_one_batch_with_a_refused_statement_settles_the_others(depot: Depot, transcripts: str) -> None:
    """Two transcripts with one id: the database itself refuses the second."""
    ledger = depot.ledger
    ledger.on_completed("p_transcribe", platform_types.record)
    requests = [JobRequest("p_transcribe", f"k{n}", params={"id": "same"}) for n in range(2)]
    ledger.plan(depot.scope, [*requests, JobRequest("p_echo", "other")])
    leases = ledger.claim("w", limit=9, ttl_s=60)
    artifact = depot.put(io.BytesIO(b"words"), name="w").artifact
    assert artifact is not None
    from longshore.domain.model import Blob, NewArtifact

    blob = Blob(artifact.sha256, artifact.size_bytes, artifact.pointer, artifact.backend, artifact.content_type)
    made = NewArtifact(blob, "transcript", metadata={"transcript_id": "same"})
    settled = ledger.settle([(lease, Completed((made,))) for lease in leases])
    kinds = [(lease.job.job_type, isinstance(one, HookFailed)) for lease, one in zip(leases, settled, strict=True)]
    assert sorted(kinds) == [("p_echo", False), ("p_transcribe", False), ("p_transcribe", True)]
    assert len(rows(transcripts, "SELECT 1 FROM transcripts")) == 1


def test_own_tables_are_kept_apart_by_tenant(depot: Depot, transcripts: str) -> None:
    if not transcripts.startswith("postgres"):
        pytest.skip("row-level security is PostgreSQL's")
    for tenant in ("acme", "other"):
        depot.submit("p_transcribe", params={"id": "t1"}, scope=Scope(tenant, "main"))
    assert depot.run().completed == 2
    assert [tuple(row) for row in rows(transcripts, "SELECT tenant_id FROM transcripts", "acme")] == [("acme",)]


def test_artifacts_and_jobs_are_found_by_their_own_ids(depot: Depot, transcripts: str) -> None:
    planned = [depot.submit("p_transcribe", params={"id": f"t{n}", "call": 7}) for n in range(3)]
    depot.run()
    (found,) = depot.artifacts(ArtifactFilter(metadata={"transcript_id": "t1"}))
    assert found.created_by_job_id == planned[1].job_id
    assert len(depot.artifacts(ArtifactFilter(metadata={"language": "en", "score": 0.5}), limit=2)) == 2
    assert depot.artifacts(ArtifactFilter(metadata={"language": "en", "transcript_id": "t9"})) == []
    assert [one.job_id for one in depot.jobs(JobFilter(metadata={"transcript_id": "t2"}))] == [planned[2].job_id]
    by_call = [one.job_id for one in depot.jobs(JobFilter(parameters={"call": 7}, oldest_first=True))]
    assert by_call == [one.job_id for one in planned]
    assert [one.job_id for one in depot.jobs(JobFilter(parameters={"call": 7}, metadata={"transcript_id": "t0"}))] == [
        planned[0].job_id
    ]
    assert depot.jobs(JobFilter(parameters={"call": 7}, status=Status.FAILED)) == []
    with pytest.raises(BadInput, match="cannot be looked up"):
        depot.artifacts(ArtifactFilter(metadata={"long": "x" * 300}))
    other = Scope("other", "main")
    assert depot.artifacts(ArtifactFilter(metadata={"language": "en"}), scope=other) == []


def test_the_types_are_declared_once() -> None:
    assert longshore.JobFailed is JobFailed
    assert Path(platform_types.__file__).name == "platform_types.py"
