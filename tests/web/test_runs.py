"""Runs over HTTP."""

from __future__ import annotations

from longshore.domain.model import Scope
from tests.support.site import Site


def test_runs_by_pages_and_by_name(site: Site) -> None:
    client = site.client("write", tenant="running")
    for number in range(3):
        body = {"url": f"https://a.example/{number}", "run_id": f"run {number}/ü"}
        assert client.post("/api/v1/jobs", doc=body).status == 202
    first = client.get("/api/v1/runs?limit=2").json()
    assert [run["run_id"] for run in first["runs"]] == ["run 2/ü", "run 1/ü"]
    rest = client.get(f"/api/v1/runs?limit=2&after={first['next']}").json()
    assert ([run["run_id"] for run in rest["runs"]], rest["next"]) == (["run 0/ü"], None)
    assert rest["runs"][0]["jobs"]["pending"] == 1
    assert (rest["runs"][0]["bytes"], rest["runs"][0]["ended_at"]) == (0, None)
    one = client.get("/api/v1/runs/plain").json()
    assert one["reason"] == "not_found"
    client.post("/api/v1/jobs", doc={"url": "https://a.example/p", "run_id": "plain"})
    assert client.get("/api/v1/runs/plain").json()["jobs"]["pending"] == 1
    assert client.get("/api/v1/failures?run_id=plain").json() == {"groups": []}
    other = site.client("read", tenant="stranger")
    assert other.get("/api/v1/runs").json()["runs"] == []
    assert other.get("/api/v1/runs/plain").status == 404


def test_jobs_name_their_inputs_and_results(site: Site) -> None:
    scope = Scope("linked", "default")
    job, artifact = site.complete("https://in.example/linked", b"input", scope=scope)
    client = site.client("read", tenant="linked")
    shown = client.get(f"/api/v1/jobs/{job}").json()
    assert (shown["result_artifacts"], shown["input_artifacts"]) == ([artifact], [])
    assert (shown["tenant_id"], shown["project_id"]) == ("linked", "default")
    assert client.get("/api/v1/jobs").json()["jobs"][0]["result_artifacts"] == [artifact]
