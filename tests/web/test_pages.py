"""What a person with a browser is told: problems as pages with a way out, forms that answer without a script."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from longshore.domain.model import SECOND, Scope
from longshore.domain.policy.tokens import csrf_token
from longshore.domain.run_events import RunEvent
from tests.support.site import Client, Site

PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def signed_in(site: Site, *scopes: str, tenant: str = "default") -> tuple[Client, str]:
    """Sign in; give a browser without a script, and its CSRF token."""
    answer = site.stranger().post("/sign-in", form={"token": site.token(*scopes, tenant=tenant)})
    assert answer.status == 303, answer.text
    cookie = answer.headers["set-cookie"].partition(";")[0]
    return Client(site.port, headers={"Cookie": cookie, **PAGE}), csrf_token(cookie.partition("=")[2])


def followed(client: Client, answer: Any) -> str:
    """Go where a form led, with the cookie it left; give the page's text."""
    assert answer.status == 303, answer.text
    left = answer.headers.get("set-cookie", "").partition(";")[0]
    page = client.get(answer.headers["location"], headers={"Cookie": f"{client.headers['Cookie']}; {left}"})
    assert page.status == 200
    return html.unescape(re.sub(r"<[^>]+>", " ", page.text.partition('id="told"')[2].partition("</div>")[0]))


@pytest.mark.parametrize(
    ("path", "status"), [("/hosts", 403), ("/system", 403), ("/jobs?status=bogus", 422), ("/nothing", 404)]
)
def test_a_problem_is_a_page_for_a_person_and_a_document_for_a_program(site: Site, path: str, status: int) -> None:
    browser, _ = signed_in(site, "write")
    page = browser.get(path)
    assert page.status == status
    assert page.headers["content-type"].startswith("text/html")
    assert 'href="/"' in page.text
    assert "Sign out" in page.text
    assert (status == 403) == ("Sign in with another token" in page.text)
    twin = browser.get(path.replace("?", ".json?") if "?" in path else path + ".json")
    assert (twin.status, twin.headers["content-type"]) == (status, "application/problem+json")
    plain = site.client("write").get(path)
    assert (plain.status, plain.headers["content-type"]) == (status, "application/problem+json")


def test_an_answer_of_the_api_stays_a_document_even_for_a_browser(site: Site) -> None:
    browser, _ = signed_in(site, "read")
    assert browser.get("/api/v1/nothing").headers["content-type"] == "application/problem+json"


def test_a_refused_form_is_a_page_that_leads_back(site: Site) -> None:
    browser, csrf = signed_in(site, "write")
    headers = {"Referer": f"{site.url}/jobs?status=failed"}
    page = browser.post("/jobs/act?status=failed", form={"csrf": csrf, "act": "retry"}, headers=headers)
    assert (page.status, "choose jobs first" in page.text) == (422, True)
    assert 'href="/jobs?status=failed"' in page.text
    stale = browser.post("/add", form={"csrf": "old", "lines": "https://a.example/"})
    assert (stale.status, stale.headers["content-type"]) == (403, "text/html; charset=utf-8")
    foreign = {"Origin": "http://evil.example"}
    assert "another site" in Client(site.port, headers=PAGE).post("/sign-in", form={"token": "x"}, headers=foreign).text


def test_a_throttled_person_is_told_on_a_page(tmp_path: Any) -> None:
    with Site.local(tmp_path, wrong_per_minute=1) as site:
        person = Client(site.port, headers=PAGE)
        assert [person.post("/sign-in", form={"token": "lsh_x"}).status for _ in range(2)] == [401, 429]
        page = person.post("/sign-in", form={"token": "lsh_x"})
        assert "too many wrong tokens" in page.text
        assert int(page.headers["retry-after"]) >= 1


def test_forms_tell_on_the_next_page_what_came_of_them(site: Site) -> None:
    browser, csrf = signed_in(site, "write", tenant="told")
    failed = site.fail("https://told.example/1", scope=Scope("told", "default"))
    added = browser.post("/add", form={"csrf": csrf, "lines": "https://told.example/2\nnot a url"})
    assert "1 job added; not added: line 2" in followed(browser, added)
    one = browser.post(f"/jobs/{failed}/retry", form={"csrf": csrf})
    assert "1 new job planned" in followed(browser, one)
    chosen = browser.post("/jobs/act?host=told.example", form={"csrf": csrf, "act": "cancel", "job_id": failed})
    assert chosen.headers["location"] == "/jobs?host=told.example"
    assert "1 chosen job left as is" in followed(browser, chosen)


def test_what_the_cookie_says_is_text_and_nothing_else(site: Site) -> None:
    browser, _ = signed_in(site, "read")
    for word in ("good%20%3Cscript%3Ealert(1)%3C/script%3E", "evil%20x", "%ff%fe", "good"):
        page = browser.get("/", headers={"Cookie": f"{browser.headers['Cookie']}; longshore_word={word}"})
        assert page.status == 200
        assert "<script>alert" not in page.text


def test_all_that_match_are_counted_and_asked_about_before_anything_is_done(site: Site) -> None:
    scope = Scope("asked", "default")
    browser, csrf = signed_in(site, "write", tenant="asked")
    for n in range(2):
        site.fail(f"https://asked.example/failed-{n}", scope=scope)
    site.complete("https://asked.example/held", b"held", scope=scope)
    site.plan(*(f"https://asked.example/{n}" for n in range(3)), scope=scope)
    question = browser.post("/jobs/act-all?host=asked.example", form={"csrf": csrf, "act": "cancel"})
    assert "Cancel 3 jobs (host asked.example)?" in question.text

    def count() -> dict[str, int]:
        found: dict[str, int] = site.client("read", tenant="asked").get("/api/v1/stats").json()["jobs"]
        return found

    assert count()["pending"] == 3
    audit = site.client("admin", tenant="asked").get("/api/v1/audit").json()["entries"]
    assert [line["target"] for line in audit] == ["/sign-in"]  # a question changes nothing
    fields = dict(
        re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', question.text.partition("<section")[2])
    )
    site.plan("https://asked.example/late", scope=scope)
    overtaken = browser.post("/jobs/act-all?host=asked.example", form=fields)
    assert (overtaken.status, "4 jobs match now, not 3" in overtaken.text) == (409, True)
    done = browser.post("/jobs/act-all?host=asked.example", form={**fields, "expected_count": 4})
    assert "4 jobs canceled" in followed(browser, done)
    assert count()["canceled"] == 4
    again = browser.post("/jobs/act-all?status=completed", form={"csrf": csrf, "act": "retry"})
    assert "nothing to retry" in followed(browser, again)
    # With the script: the same question, and then the same form again.
    script = {"Accept": "application/json"}
    asked = browser.post("/jobs/act-all?status=failed", form={"csrf": csrf, "act": "retry"}, headers=script).json()
    assert asked == {"ask": "Retry 2 jobs (status failed)?", "expected_count": 2}


@pytest.mark.parametrize("path", ["/failures/retry", "/jobs/{job}/cancel", "/system/tokens/{token}/revoke"])
def test_without_a_script_the_page_asks_what_the_script_would(site: Site, path: str) -> None:
    browser, csrf = signed_in(site, "admin")
    [job] = site.plan("https://ask.example/")
    token = site.client("admin").get("/api/v1/tokens").json()["tokens"][0]["token_id"]
    form = {"csrf": csrf, "reason": "http_404", "host": "ask.example", "expected_count": 5}
    page = browser.post(path.format(job=job, token=token), form=form)
    assert page.status == 200
    assert 'name="confirmed" value="1"' in page.text
    assert site.client("admin").get(f"/api/v1/jobs/{job}").json()["status"] == "pending"


def test_a_magnet_is_refused_in_the_box_at_once(site: Site) -> None:
    browser, csrf = signed_in(site, "write", tenant="pasted")
    assert "magnet" not in browser.get("/").text
    magnet = "magnet:?xt=urn:btih:" + "a" * 40 + "&dn=Book"
    refused = browser.post("/add", form={"csrf": csrf, "lines": magnet}, headers={"Accept": "application/json"})
    assert refused.status == 422
    assert "longshore torrent add" in refused.json()["detail"]
    mixed = browser.post("/add", form={"csrf": csrf, "lines": f"# mine\nhttps://m.example/1\n\n{magnet}\n"})
    assert "1 job added; not added: line 4: a magnet" in followed(browser, mixed)
    assert site.client("read", tenant="pasted").get("/api/v1/stats").json()["jobs"]["pending"] == 1


def test_a_transfer_under_way_shows_its_bytes(site: Site) -> None:
    scope = Scope("moving", "default")
    [job] = site.plan("https://moving.example/large", scope=scope)
    site.lease([job], scope)
    client = site.client("read", tenant="moving")
    site.service.note(RunEvent("progress", SECOND, scope, job, None, {"bytes_done": 3 << 20, "bytes_total": 12 << 20}))
    for path in ("/", "/jobs", f"/jobs/{job}"):
        page = re.sub(r"<[^>]+>", "", client.get(path).text)
        assert "25 % · 3.0 MiB of 12.0 MiB" in page, path
    site.service.note(RunEvent("progress", SECOND, scope, job, None, {"bytes_done": 3 << 20, "bytes_total": None}))
    assert client.get("/overview.json").json()["active"][0]["bytes_done"] == 3 << 20
    assert "3.0 MiB" in client.get(f"/jobs/{job}").text  # without a length there is no percentage
    site.service.note(RunEvent("retry", SECOND, scope, job, None, {"reason": "truncated"}))
    assert client.get(f"/jobs/{job}.json").json()["job"]["bytes_done"] is None  # nothing of it is in the ledger
