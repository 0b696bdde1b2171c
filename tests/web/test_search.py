"""One box finds a job or an artifact by what a person has of it."""

from __future__ import annotations

import pytest

from longshore.domain.identity.requests import download_request
from longshore.domain.model import JobRequest, Scope
from longshore.ledger import Ledger
from longshore.ledger.queries.search import search
from tests.ledger.acts import HOME, held, lease, settle
from tests.support.site import Site
from tests.web.test_pages import signed_in


def test_everything_a_person_may_have_of_a_job_finds_it(ledger: Ledger) -> None:
    request = download_request(
        "https://zenodo.org/records/77/files/corpus-2024.tar.zst?token=tops3cret", name="My Corpus.tar", work_id="W42"
    )
    [planned] = ledger.plan(HOME, [request])
    ledger.plan(HOME, [download_request("https://other.example/100%25_sure")])
    [artifact] = settle(ledger, lease(ledger), held(0xABC)).artifact_ids
    job = planned.job_id
    for text in (
        job,
        job[:13],
        job[-6:],
        "zenodo.org",
        "ZENODO",
        "/77/files",
        "corpus-2024",
        "my corpus",
        "W42",
        "records/77/files/corpus-2024.tar.zst",
    ):
        found = ledger.read(search, HOME, text)
        assert [one.job_id for one in found.jobs][:1] == [job] or job in [one.job_id for one in found.jobs], text
    for text in (artifact, artifact[:18], f"{0xABC:064x}", f"{0xABC:064x}"[:61]):
        assert [one.artifact_id for one in ledger.read(search, HOME, text).artifacts] == [artifact], text
    assert [one.request.url for one in ledger.read(search, HOME, "100%25_").jobs] == [
        "https://other.example/100%25_sure"
    ]
    for text in ("tops3cret", "nothing like it", "100_25"):
        assert ledger.read(search, HOME, text).jobs == [], text  # a secret is not found by guessing at it
    assert ledger.read(search, Scope("other", "main"), "zenodo").jobs == []


def test_the_box_is_on_every_page_and_leads_to_the_job(site: Site) -> None:
    scope = Scope("find", "default")
    job, artifact = site.complete("https://find.example/deep/paper-17.pdf", b"found", name="paper-17.pdf", scope=scope)
    browser, _ = signed_in(site, "read", tenant="find")
    assert 'action="/search"' in browser.get("/").text
    for text in ("paper-17", "find.example", "deep/paper"):
        page = browser.get(f"/search?q={text}")
        assert f'href="/jobs/{job}"' in page.text, text
    assert f'href="/artifacts/{artifact}"' in browser.get("/search?q=paper-17").text
    assert browser.get(f"/search?q={job}").headers["location"] == f"/jobs/{job}"
    assert browser.get(f"/search?q={artifact}").headers["location"] == f"/artifacts/{artifact}"
    empty = browser.get("/jobs?url=paper-17")
    assert "/search?q=paper-17" in empty.text
    assert "longshore add" not in empty.text
    nothing = browser.get("/search?q=%3Cscript%3E")
    assert "&lt;script&gt;" in nothing.text
    assert browser.get("/search?q=x&after=bogus").status == 422


@pytest.mark.parametrize("text", ["", "%", "_", "~", "\\", "'", '"', "-", "ff" * 40])
def test_no_text_breaks_it(site: Site, text: str) -> None:
    from urllib.parse import quote

    assert site.client("read").get(f"/search.json?q={quote(text)}").status == 200


def test_filters_suggest_what_there_is(site: Site) -> None:
    scope = Scope("suggest", "default")
    site.fail("https://suggest.example/", reason="http_451", message="no", scope=scope)
    site.ledger.plan(scope, [JobRequest("pdf_text", "one")])
    page = site.client("read", tenant="suggest").get("/jobs").text
    for word in ("http_451", "http_404", "pdf_text", "download"):
        assert f'<option value="{word}">' in page, word
