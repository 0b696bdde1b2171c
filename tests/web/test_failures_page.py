"""The failures page: what it counts is what its link lists, it has pages, and each reason has remedies that fit."""

from __future__ import annotations

import re

import pytest

from longshore.domain.model import Scope
from longshore.web.dashboard.remedies import advised
from tests.support.site import Site
from tests.web.test_pages import followed, signed_in


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_a_group_lists_as_many_jobs_as_it_counts(site: Site) -> None:
    scope = Scope("groups", "default")
    jobs = [site.fail(f"https://groups.example/{n}", reason="connect", message="no", scope=scope) for n in range(3)]
    browser, csrf = signed_in(site, "write", tenant="groups")
    new = browser.post(f"/jobs/{jobs[0]}/retry", form={"csrf": csrf}).headers["location"]
    group = browser.get("/failures.json").json()["groups"][0]
    assert group["count"] == 2
    assert len(browser.get(group["jobs_url"].replace("/jobs", "/jobs.json")).json()["jobs"]) == 2
    page = browser.get(f"/jobs/{jobs[0]}").text
    assert f'href="{new}"' in page
    assert "Retried as" in page
    assert "Retry as a new job" not in page
    assert "Retry as a new job" in browser.get(f"/jobs/{jobs[1]}").text
    question = browser.post(
        "/jobs/act-all" + group["jobs_url"].removeprefix("/jobs"), form={"csrf": csrf, "act": "retry"}
    )
    assert "Retry 2 jobs" in question.text


def test_many_groups_have_pages(site: Site) -> None:
    scope = Scope("paged", "default")
    for n in range(60):
        site.fail(f"https://host-{n:02d}.example/", scope=scope)
    client = site.client("read", tenant="paged")
    pages = [client.get(f"/failures.json?page={n}").json() for n in (1, 2, 3, 4)]
    assert [len(page["groups"]) for page in pages] == [25, 25, 10, 0]
    assert [page["next"] for page in pages] == [2, 3, None, None]
    assert len({group["host"] for page in pages for group in page["groups"]}) == 60
    first = client.get("/failures")
    assert "60 jobs failed" in words(first.text)
    assert len(first.body) < 100_000
    assert client.get("/failures?page=bogus").status == 200


@pytest.mark.parametrize(
    ("reason", "first", "offers"),
    [
        ("http_404", "urls", {"urls", "retry"}),
        ("type_mismatch", "urls", {"urls", "retry"}),
        ("http_429", "slow", {"slow", "later", "retry", "pause"}),
        ("connect", "later", {"later", "retry", "pause", "urls"}),
        ("truncated", "retry", {"retry", "urls"}),
        ("model.busy", "retry", {"retry", "urls"}),
        (None, "retry", {"retry", "urls"}),
    ],
)
def test_remedies_fit_the_reason(reason: str | None, first: str, offers: set[str]) -> None:
    assert advised(reason)[0] == first
    assert set(advised(reason)) == offers


def test_remedies_do_what_they_say(site: Site) -> None:
    scope = Scope("remedy", "default")
    for reason in ("http_404", "http_429"):
        for n in range(2):
            site.fail(f"https://{reason[5:]}.remedy.example/{n}", reason=reason, message="no", scope=scope)
    site.fail("https://404.remedy.example/3?token=s3cret", reason="http_404", message="no", scope=scope)
    browser, csrf = signed_in(site, "admin", tenant="remedy")
    page = words(browser.get("/failures").text)
    assert "Retry anyway" in page
    assert "One at a time" in page
    listed = browser.get("/failures/urls?reason=http_404&host=404.remedy.example").text.splitlines()
    assert sorted(listed)[1:] == ["https://404.remedy.example/0", "https://404.remedy.example/1"]
    assert "s3cret" not in "".join(listed)
    group = {"csrf": csrf, "reason": "http_429", "host": "429.remedy.example", "expected_count": 2}
    question = browser.post("/failures/host", form={**group, "act": "slow"})
    assert "one file at a time, and retry 2 failed jobs?" in question.text
    done = browser.post("/failures/host", form={**group, "act": "slow", "confirmed": 1})
    assert "one at a time; 2 new jobs planned" in followed(browser, done)
    host = site.client("admin").get("/api/v1/hosts/429.remedy.example").json()
    assert host["concurrency"] == 1
    paused = {"csrf": csrf, "reason": "http_404", "host": "404.remedy.example", "expected_count": 3, "confirmed": 1}
    assert "is paused" in followed(browser, browser.post("/failures/host", form={**paused, "act": "pause"}))
    assert site.client("admin").get("/api/v1/hosts/404.remedy.example").json()["state"] == "paused"
    writer, csrf = signed_in(site, "write", tenant="remedy")
    assert writer.post("/failures/host", form={**paused, "csrf": csrf, "act": "pause"}).status == 403
    assert "Pause host" not in writer.get("/failures").text


def test_an_artifact_names_every_job_that_came_to_its_bytes(site: Site) -> None:
    scope = Scope("same", "default")
    jobs = [site.complete(f"https://same.example/{n}", b"the same bytes", scope=scope)[0] for n in range(3)]
    client = site.client("read", tenant="same")
    artifact = client.get("/api/v1/artifacts").json()["artifacts"][0]["artifact_id"]
    view = client.get(f"/artifacts/{artifact}.json").json()
    assert {one["job_id"] for one in view["sources"]} == set(jobs)
    page = client.get(f"/artifacts/{artifact}").text
    assert all(f'href="/jobs/{job}"' in page for job in jobs)


def test_a_derived_artifact_shows_what_it_was_made_of(site: Site) -> None:
    from longshore.domain.model import Blob, JobRequest, NewArtifact
    from longshore.domain.outcomes import Completed

    scope = Scope("made", "default")
    _, source = site.complete("https://made.example/a.pdf", b"a pdf", name="a.pdf", scope=scope)
    [planned] = site.ledger.plan(
        scope, [JobRequest("pdf_text", "k", inputs=(source,), params={"pages": 7, "language": "en"})]
    )
    [lease] = site.ledger.claim("tester", limit=1, ttl_s=60, scope=scope, job_ids=[planned.job_id])
    blob = Blob("b" * 64, 4, "made/default/b", "local", "text/plain")
    [settled] = site.ledger.settle([(lease, Completed((NewArtifact(blob, artifact_type="text"),)))])
    assert not isinstance(settled, Exception), settled
    client = site.client("read", tenant="made")
    page = client.get(f"/artifacts/{settled.artifact_ids[0]}").text
    assert f'href="/artifacts/{source}"' in page
    assert "pages 7" in words(page)
    assert f'href="/jobs/{planned.job_id}"' in client.get(f"/artifacts/{source}").text
    found = client.get("/artifacts?artifact_type=text").text  # the filter is the column of the same name
    assert "<label>kind" in found
    assert 'data-label="kind">text<' in found
