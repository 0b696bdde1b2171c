"""Jobs over HTTP: handed in once, listed by pages, retried and canceled by id and by filter."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import longshore
from longshore.domain.model import Scope
from tests.support.site import Answer, Client, Site


@longshore.job_type("transcribe")
def transcribe(inputs: list[Any], params: dict[str, Any], ctx: Any) -> str:
    return ""


def test_the_same_work_twice_is_one_job(site: Site) -> None:
    client = site.client("write", tenant="twice")
    first = client.post("/api/v1/jobs", doc={"url": "https://a.example/x#fragment"})
    second = client.post("/api/v1/jobs", doc={"url": "https://a.example/x"})
    assert (first.status, second.status) == (202, 200)
    assert first.json()["created"]
    assert not second.json()["created"]
    assert first.json()["job"]["job_id"] == second.json()["job"]["job_id"]
    assert first.headers["location"] == f"/api/v1/jobs/{first.json()['job']['job_id']}"
    shown = client.get(first.headers["location"]).json()
    assert (shown["status"], shown["stage"], shown["url"]) == (
        "pending",
        "PLANNED",
        "https://a.example/x#fragment"[:19],
    )


def test_what_is_no_job_is_refused_with_a_reason(site: Site) -> None:
    client = site.client("write", tenant="refused")
    cases: list[tuple[Any, int, str]] = [
        ({"url": "not a url"}, 422, "bad_url"),
        ({}, 422, "bad_input"),
        ({"url": "https://a.example/", "status": "completed"}, 422, "bad_input"),
        ({"url": "https://a.example/", "tenant_id": "other"}, 422, "bad_input"),
        ({"url": "https://a.example/", "sha256": "short"}, 422, "bad_input"),
        ({"url": "https://a.example/", "priority": 1.5}, 422, "bad_input"),
        ({"url": "https://a.example/", "headers": {"A\r\nB": "x"}}, 422, "bad_input"),
        ({"url": "https://a.example/", "headers": {"A": "x\r\nB: y"}}, 422, "bad_input"),
        ({"job_type": "torrent"}, 422, "bad_input"),
        ([], 422, "bad_input"),
    ]
    for body, status, reason in cases:
        answer = client.post("/api/v1/jobs", doc=body)
        assert (answer.status, answer.json()["reason"]) == (status, reason), body
        assert answer.headers["content-type"] == "application/problem+json"
    broken = client.post("/api/v1/jobs", body=b"{", headers={"Content-Type": "application/json"})
    assert (broken.status, broken.json()["reason"]) == (400, "bad_request")
    assert client.get("/api/v1/jobs").json()["jobs"] == []


def test_an_own_job_type_is_known_by_its_inputs_and_parameters(site: Site) -> None:
    client = site.client("write", tenant="own")
    _, artifact = site.complete("https://in.example/", b"input", scope=Scope("own", "default"))
    body: dict[str, Any] = {"job_type": "transcribe", "inputs": [artifact], "params": {"language": "en"}}
    one, two = (client.post("/api/v1/jobs", doc=body).json() for _ in range(2))
    other = client.post("/api/v1/jobs", doc=body | {"params": {"language": "de"}}).json()
    assert one["job"]["job_id"] == two["job"]["job_id"] != other["job"]["job_id"]


def test_an_idempotency_key_gives_the_first_answer_and_refuses_another_body(site: Site) -> None:
    client = site.client("write", tenant="keyed")
    key = {"Idempotency-Key": "k-1"}
    first = client.post("/api/v1/jobs", doc={"url": "https://k.example/1"}, headers=key)
    again = client.post("/api/v1/jobs", doc={"url": "https://k.example/1"}, headers=key)
    other = client.post("/api/v1/jobs", doc={"url": "https://k.example/2"}, headers=key)
    assert (first.status, again.status) == (202, 202)
    assert first.json()["job"]["job_id"] == again.json()["job"]["job_id"]
    assert (other.status, other.json()["reason"]) == (422, "key_reused")
    stranger = site.client("write", tenant="keyed-too").post(
        "/api/v1/jobs", doc={"url": "https://k.example/2"}, headers=key
    )
    assert stranger.status == 202  # another tenant's key is another key
    assert len(client.get("/api/v1/jobs").json()["jobs"]) == 1


def post_at_once(
    client: Client, count: int, body: dict[str, Any], headers: dict[str, str] | None = None
) -> list[Answer]:
    gate = threading.Barrier(32)

    def some(share: int) -> list[Answer]:
        gate.wait()
        return [client.post("/api/v1/jobs", doc=body, headers=headers) for _ in range(share)]

    with ThreadPoolExecutor(32) as threads:
        return [
            answer
            for group in threads.map(some, [count // 32 + (i < count % 32) for i in range(32)])
            for answer in group
        ]


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "all-the-same"}])
def test_identical_posts_at_once_make_one_job(site: Site, headers: dict[str, str]) -> None:
    client = site.client("write", tenant="crowd" + str(len(headers)))
    answers = post_at_once(client, 200, {"url": "https://crowd.example/"}, headers)
    assert {answer.status for answer in answers} <= {200, 202}
    assert len({answer.json()["job"]["job_id"] for answer in answers}) == 1
    assert len(client.get("/api/v1/jobs").json()["jobs"]) == 1
    if not headers:
        assert sum(answer.json()["created"] for answer in answers) == 1


@pytest.mark.torture
def test_a_thousand_identical_posts_at_once_make_one_job(site: Site) -> None:
    client = site.client("write", tenant="thousand")
    answers = post_at_once(client, 1000, {"url": "https://crowd.example/"})
    assert len({answer.json()["job"]["job_id"] for answer in answers}) == 1
    assert sum(answer.json()["created"] for answer in answers) == 1


def test_an_own_job_with_an_input_that_is_not_there_is_refused(site: Site) -> None:
    client = site.client("write", tenant="own-less")
    body = {"job_type": "transcribe", "inputs": ["00000000-0000-7000-8000-000000000000"]}
    assert client.post("/api/v1/jobs", doc=body).status == 404
    assert client.get("/api/v1/jobs").json()["jobs"] == []


def test_a_batch_answers_every_line_in_order_and_a_bad_line_stops_no_other(site: Site) -> None:
    client = site.client("write", tenant="batch")
    lines = [
        '{"url": "https://b.example/1"}',
        "https://b.example/2",
        "",
        '{"url": "https://b.example/1", "nonsense": 1}',
        "{",
        "nothing",
        '{"url": "https://b.example/1"}',
        "[" * 5000,
    ]
    answer = client.post("/api/v1/jobs:batch", body="\n".join(lines), headers={"Content-Type": "application/x-ndjson"})
    assert answer.status == 200
    said = [json.loads(line) for line in answer.text.splitlines()]
    assert [item["line"] for item in said] == [1, 2, 4, 5, 6, 7, 8]
    assert [item.get("created") for item in said] == [True, True, None, None, None, False, None]
    assert said[5]["job_id"] == said[0]["job_id"]
    assert all(item["reason"] == "bad_input" for item in said if "job_id" not in item)


def test_a_batch_of_thousands_is_planned_whole(site: Site) -> None:
    client = site.client("write", tenant="batches")
    body = "".join(f"https://b.example/{n}\n" for n in range(3000))
    answer = client.post("/api/v1/jobs:batch", body=body, headers={"Content-Type": "application/x-ndjson"})
    said = [json.loads(line) for line in answer.text.splitlines()]
    assert len({item["job_id"] for item in said}) == 3000
    assert client.get("/api/v1/stats").json()["jobs"]["pending"] == 3000


def test_a_batch_takes_lines_only(site: Site) -> None:
    client = site.client("write", tenant="batch-type")
    assert client.post("/api/v1/jobs:batch", doc=[]).status == 415
    long = b"x" * (1 << 21)
    answer = client.post("/api/v1/jobs:batch", body=long, headers={"Content-Type": "application/x-ndjson"})
    assert (answer.status, answer.json()["reason"]) == (413, "line_too_long")


def test_pages_follow_each_other_without_gap_or_overlap(site: Site) -> None:
    client = site.client("write", tenant="paged")
    site.plan(*(f"https://p.example/{n}" for n in range(23)), scope=Scope("paged", "default"))
    seen, after = [], ""
    while True:
        page = client.get(f"/api/v1/jobs?limit=5{after}").json()
        seen += [job["url"] for job in page["jobs"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
        site.plan(f"https://p.example/new-{len(seen)}", scope=Scope("paged", "default"))  # newer ones do not disturb
    assert seen == [f"https://p.example/{n}" for n in reversed(range(23))]


def test_filters_select_by_status_reason_host_url_and_type(site: Site) -> None:
    scope = Scope("filtered", "default")
    client = site.client("read", tenant="filtered")
    failed = site.fail("https://one.example/404", scope=scope)
    slow = site.fail("https://two.example/slow", reason="too_slow", message="slow", scope=scope)
    done, _ = site.complete("https://one.example/ok", scope=scope)

    def found(query: str) -> set[str]:
        return {job["job_id"] for job in client.get("/api/v1/jobs?" + query).json()["jobs"]}

    assert found("") == {failed, slow, done}
    assert found("status=failed") == {failed, slow}
    assert found("reason=too_slow") == {slow}
    assert found("host=one.example") == {failed, done}
    assert found("host=one.example&status=completed") == {done}
    assert found("url=https://two.example/slow") == {slow}
    assert found("job_type=torrent") == set()
    assert client.get("/api/v1/jobs?status=nonsense").status == 422
    assert client.get("/api/v1/jobs?after=nonsense'--").status == 422


def test_a_retry_makes_a_linked_new_job_once(site: Site) -> None:
    scope = Scope("retried", "default")
    client = site.client("write", tenant="retried")
    failed = site.fail("https://r.example/1", scope=scope)
    answer = client.post(f"/api/v1/jobs/{failed}/retry")
    assert answer.json()["count"] == 1
    new = client.get(f"/api/v1/jobs/{answer.json()['job_ids'][0]}").json()
    assert (new["retry_of"], new["status"]) == (failed, "pending")
    assert client.get(f"/api/v1/jobs/{failed}").json()["status"] == "failed"  # terminal is final


def test_a_bulk_action_needs_the_count_that_was_seen(site: Site) -> None:
    scope = Scope("bulk", "default")
    client = site.client("write", tenant="bulk")
    for n in range(3):
        site.fail(f"https://bulk.example/{n}", scope=scope)
    wanted = {"filter": {"status": "failed", "reason": "http_404", "host": "bulk.example"}}
    assert client.post("/api/v1/jobs:retry", doc=wanted).status == 422
    changed = client.post("/api/v1/jobs:retry", doc=wanted | {"expected_count": 2})
    assert (changed.status, changed.json()["reason"], changed.json()["actual_count"]) == (409, "count_changed", 3)
    assert client.get("/api/v1/stats").json()["jobs"]["pending"] == 0
    done = client.post("/api/v1/jobs:retry", doc=wanted | {"expected_count": 3})
    assert (done.status, done.json()["count"]) == (200, 3)
    assert client.get("/api/v1/stats").json()["jobs"]["pending"] == 3
    pending = {"filter": {"status": "pending"}, "expected_count": 3}
    assert client.post("/api/v1/jobs:cancel", doc=pending).json()["count"] == 3
    assert client.get("/api/v1/stats").json()["jobs"]["canceled"] == 3
    assert client.post("/api/v1/jobs:cancel", doc={"filter": {}, "job_ids": [], "expected_count": 0}).status == 422


def test_waiting_ends_when_the_job_is_over(site: Site) -> None:
    scope = Scope("waits", "default")
    client = site.client("read", tenant="waits")
    [job_id] = site.plan("https://w.example/", scope=scope)
    assert client.get(f"/api/v1/jobs/{job_id}?wait=0.05").json()["status"] == "pending"
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(client.get, f"/api/v1/jobs/{job_id}?wait=60")
        site.complete("https://w.example/", scope=scope)
        assert waiting.result(60).json()["status"] == "completed"
    assert client.get(f"/api/v1/jobs/{job_id}?wait=61").status == 422


def test_a_timeline_tells_claims_events_effects_and_results(site: Site) -> None:
    scope = Scope("told", "default")
    client = site.client("read", tenant="told")
    job_id, artifact_id = site.complete("https://t.example/", b"story", scope=scope)
    story = client.get(f"/api/v1/jobs/{job_id}/timeline").json()
    assert [claim["ended_how"] for claim in story["claims"]] == ["completed"]
    assert story["claims"][0]["owner"] == "tester"
    assert [artifact["artifact_id"] for artifact in story["artifacts"]] == [artifact_id]
    assert "completed" in {event["kind"] for event in story["events"]}
    page = client.get(f"/jobs/{job_id}.json").json()
    titles = [step["title"] for step in page["timeline"]]
    assert titles[0] == "Planned"
    assert titles[-1] == "Completed"
    assert page["timeline"][0]["at"] <= page["timeline"][-1]["at"]


def test_a_filtered_page_that_found_nothing_yet_leads_on(site: Site) -> None:
    """A filter without an index looks at a bounded number of rows a page; what is older must stay reachable."""
    scope = Scope("deep", "default")
    client = site.client("read", tenant="deep")
    site.plan("https://old.example/", scope=scope)
    for start in range(0, 2500, 500):
        site.plan(*(f"https://new.example/{n}" for n in range(start, start + 500)), scope=scope)
    page = client.get("/jobs.json?host=old.example").json()
    assert page["jobs"] == []
    assert "look further" in client.get("/jobs?host=old.example").text
    found = client.get(f"/jobs.json?host=old.example&after={page['next']}").json()["jobs"]
    assert [job["host"] for job in found] == ["old.example"]
