"""Jobs of one's own over HTTP: the same job as from Python, and no answer whose bytes are gone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import longshore
from longshore import compat
from longshore.domain.model import Scope
from longshore.worker.kinds.custom import job_types
from tests.support.site import Site

HOME = Scope("own", "jobs")


@longshore.job_type("web_words", version="7", max_attempts=2)
def web_words(inputs: list[Any], params: dict[str, Any], ctx: Any) -> int:
    return len(inputs)


def test_a_job_handed_in_over_http_is_the_job_that_submit_would_make(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = site.client("write", tenant=HOME.tenant_id, project=HOME.project_id)
    _, artifact_id = site.complete("https://own.example/a", b"some words", scope=HOME)
    sha256 = site.ledger.artifact(HOME, artifact_id).sha256
    asked = {"job_type": "web_words", "inputs": [artifact_id], "params": {"n": 1}}
    first = client.post("/api/v1/jobs", doc=asked).json()
    job = site.ledger.job(HOME, first["job"]["job_id"])
    assert job.request.key == job_types.own_key(HOME, "web_words", [sha256], {"n": 1})
    assert job.request.max_attempts == 2
    assert client.post("/api/v1/jobs", doc=asked).json()["created"] is False
    monkeypatch.setitem(job_types._types, "web_words", dataclasses.replace(job_types._types["web_words"], version="8"))
    assert client.post("/api/v1/jobs", doc=asked).json()["created"] is True, "another version is other work"


def test_a_completed_job_whose_bytes_are_gone_is_no_answer(site: Site) -> None:
    client = site.client("write", tenant=HOME.tenant_id, project=HOME.project_id)
    url = "https://own.example/lost"
    job_id, artifact_id = site.complete(url, b"soon gone", scope=HOME)
    assert client.post("/api/v1/jobs", doc={"url": url}).json()["created"] is False
    path = site.store.path(HOME, site.ledger.artifact(HOME, artifact_id).pointer)
    assert path is not None
    Path(path).unlink()
    again = client.post("/api/v1/jobs", doc={"url": url}).json()
    assert again["created"] is True
    assert again["job"]["retry_of"] == job_id
    assert site.ledger.artifact(HOME, artifact_id).availability == "missing"


def test_a_tenant_beyond_its_items_is_told_so(site: Site) -> None:
    client = site.client("write", tenant="small", project="p")
    site.ledger.set_budget("small", items=1)
    assert client.post("/api/v1/jobs", doc={"url": "https://own.example/1"}).status == 202
    refused = client.post("/api/v1/jobs", doc={"url": "https://own.example/2"})
    assert (refused.status, refused.json()["reason"]) == (403, "quota_exceeded")


def test_a_null_key_is_a_new_job_each_time(site: Site) -> None:
    client = site.client("write", tenant=HOME.tenant_id, project=HOME.project_id)
    asked = {"job_type": "web_words", "params": {"temperature": 0.2}, "key": None}
    answers = [client.post("/api/v1/jobs", doc=asked).json() for _ in range(2)]
    assert [one["created"] for one in answers] == [True, True]
    jobs = [site.ledger.job(HOME, one["job"]["job_id"]) for one in answers]
    assert [(job.request.key, job.request.max_attempts) for job in jobs] == [(None, 2)] * 2
    assert client.post("/api/v1/jobs", doc={**asked, "key": "\0derived"}).status == 422
    wrong = client.post("/api/v1/jobs", doc={**asked, "params": {"a": ["e\u0301"]}})
    assert (wrong.status, "params.a[0]" in wrong.json()["detail"]) == (422, True)


def test_a_code_of_one_s_own_and_a_domain_id_are_found(site: Site) -> None:
    client = site.client("write", tenant=HOME.tenant_id, project=HOME.project_id)
    planned = client.post("/api/v1/jobs", doc={"job_type": "web_words", "params": {"call": "c-1"}}).json()["job"]
    (lease,) = site.ledger.claim("w", limit=1, ttl_s=60, scope=HOME, job_ids=[planned["job_id"]])
    compat.fail(site.ledger, lease, "model.busy", "try later")
    (job,) = client.get("/api/v1/jobs?reason=model.busy").json()["jobs"]
    assert job["job_id"] == planned["job_id"]
    assert job["debug_id"]
    assert [one["job_id"] for one in client.get("/api/v1/jobs?parameter=call%3Dc-1").json()["jobs"]] == [job["job_id"]]
    assert client.get("/api/v1/jobs?parameter=call%3Dc-2").json()["jobs"] == []
    assert client.get("/api/v1/artifacts?metadata=transcript_id%3Dt1").json()["artifacts"] == []
    assert client.get("/api/v1/artifacts?metadata=transcript_id").status == 422
    groups = client.get("/api/v1/failures").json()["groups"]
    assert "model.busy" in {group["reason"] for group in groups}
