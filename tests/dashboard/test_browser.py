"""The dashboard as people use it, in a real Chromium against a real server."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from longshore.domain.model import Scope
from longshore.web.dashboard.pages import MENU
from tests.dashboard.conftest import Person
from tests.support.browser import PATIENCE_MS, Chromium
from tests.support.site import Site

pytestmark = pytest.mark.xdist_group("browser")
expect.set_options(timeout=PATIENCE_MS)


def complaints(page: Any) -> list[str]:
    """Collect what the browser complains about: refused scripts and styles, errors, failed requests."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    return said


def test_sign_in_and_out(site: Site, browser: Chromium) -> None:
    secret = site.token("read")

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.opens("/jobs")
        expect(page).to_have_url(site.url + "/sign-in?next=/jobs")
        page.get_by_label("Token").fill("lsh_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("is not valid")
        page.goto(site.url + "/sign-in?next=/jobs")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(site.url + "/jobs")
        [cookie] = page.context.cookies()
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        assert secret not in cookie["value"]
        assert page.evaluate("document.cookie") == ""
        page.get_by_role("button", name="Sign out").click()
        expect(page).to_have_url(site.url + "/sign-in")
        assert page.context.cookies() == []
        # The old cookie opens nothing any more, even if somebody kept it.
        page.context.add_cookies([cookie])
        page.goto(site.url + "/jobs")
        expect(page).to_have_url(site.url + "/sign-in?next=/jobs")

    browser.visit(visit)


def test_add_by_paste_and_watch_it_complete_live(site: Site, browser: Chromium) -> None:
    secret = site.token("write")

    def visit(page: Any) -> None:
        said = complaints(page)
        person = Person(page, site)
        person.signs_in(secret)
        expect(page.locator(".live")).to_have_attribute("data-state", "live")
        page.get_by_label(re.compile("URLs, one a line")).fill("https://a.example/1\nhttps://a.example/2\nno url\n")
        page.get_by_role("button", name="Add to the depot").click()
        expect(page.locator("#told")).to_contain_text("2 jobs added")
        expect(page.locator("#told")).to_contain_text("line 3")
        expect(page.locator(".tile.pending b")).to_have_text("2")
        site.complete("https://a.example/1", b"one")  # what a worker does; the page must notice by itself
        expect(page.locator(".tile.completed b")).to_have_text("1")
        expect(page.locator(".tile.pending b")).to_have_text("1")
        expect(page.locator('[data-live="held"]')).to_contain_text("3 B")
        expect(page.locator(".uplot canvas")).to_be_visible()
        assert said == []

    browser.visit(visit)


def test_open_the_timeline_of_a_job(site: Site, browser: Chromium) -> None:
    job_id, _ = site.complete("https://a.example/paper.pdf", b"paper")

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("read"))
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.get_by_role("link", name="https://a.example/paper.pdf").click()
        expect(page).to_have_url(f"{site.url}/jobs/{job_id}")
        steps = page.locator(".timeline li")
        expect(steps.first).to_contain_text("Planned")
        expect(steps.last).to_contain_text("Completed")
        expect(page.locator("#as-cli")).to_have_text("longshore get https://a.example/paper.pdf")
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        assert download.value.path().read_bytes() == b"paper"

    browser.visit(visit)


def test_retry_a_failed_group_with_one_click(site: Site, browser: Chromium) -> None:
    for n in range(3):
        site.fail(f"https://bad.example/{n}")
    site.fail("https://slow.example/", reason="too_slow", message="slow")

    def visit(page: Any) -> None:
        page.on("dialog", lambda dialog: dialog.accept())
        person = Person(page, site)
        person.signs_in(site.token("write"))
        page.get_by_role("link", name="Failures").click()
        row = page.locator("tr", has_text="bad.example")
        expect(row.locator("td").first).to_have_text("3")
        expect(page.locator(".live")).to_have_text("live")  # until then the form asks on a page of its own
        row.get_by_role("button", name="Retry anyway").click()
        expect(page.locator("#told")).to_contain_text("3 new jobs planned")
        expect(row).to_have_count(0)
        expect(page.locator("tr", has_text="slow.example")).to_have_count(1)

    browser.visit(visit)
    assert site.client("read").get("/api/v1/stats").json()["jobs"]["pending"] == 3


def test_a_choice_made_while_the_list_is_fetched_again_stays(site: Site, browser: Chromium) -> None:
    site.plan(*(f"https://many.example/{n}" for n in range(3)))

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("write"))
        person.opens("/jobs?host=many.example")
        expect(page.locator(".live")).to_have_text("live")
        box = page.get_by_label(re.compile("Choose job")).first
        held: list[Any] = []
        page.route("**/jobs?host=many.example", lambda route: held.append(route))  # noqa: PLW0108 - playwright marks it
        site.plan("https://many.example/later")
        _until(page, lambda: bool(held))  # the page asks for its list again
        box.check()
        for route in held:
            route.continue_()
        page.wait_for_timeout(300)
        assert box.is_checked()

    browser.visit(visit)


def _until(page: Any, true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not come to that")


def test_bulk_actions_on_chosen_and_on_all_matching(site: Site, browser: Chromium) -> None:
    site.plan(*(f"https://many.example/{n}" for n in range(5)))

    def visit(page: Any) -> None:
        asked: list[str] = []

        def says_yes(dialog: Any) -> None:
            asked.append(dialog.message)
            dialog.accept()

        page.on("dialog", says_yes)
        person = Person(page, site)
        person.signs_in(site.token("write"))
        person.opens("/jobs?host=many.example")
        expect(page.locator(".live")).to_have_text("live")
        page.get_by_label(re.compile("Choose job")).first.check()
        page.get_by_role("button", name="Cancel chosen").click()
        expect(page.locator("#told")).to_contain_text("1 job canceled")
        page.get_by_role("button", name="Cancel all matching").click()
        expect(page.locator("#told")).to_contain_text("4 jobs canceled")
        assert asked == ["Cancel 4 jobs (host many.example)?"]  # of five that match, one is over already
        page.get_by_role("button", name="Cancel all matching").click()
        expect(page.locator("#told")).to_contain_text("nothing to cancel")

    browser.visit(visit)
    assert site.client("read").get("/api/v1/stats").json()["jobs"]["canceled"] == 5


def test_two_tenants_see_only_their_own(site: Site, browser: Chromium) -> None:
    site.complete("https://one.example/file", b"1", scope=Scope("one", "default"))
    site.complete("https://two.example/file", b"2", scope=Scope("two", "default"))
    secrets = {name: site.token("write", tenant=name) for name in ("one", "two")}

    def visit(first: Any, second: Any) -> None:
        for page, name, other in ((first, "one", "two"), (second, "two", "one")):
            Person(page, site).signs_in(secrets[name])
            for path in ("/", "/jobs", "/artifacts", "/failures", "/torrents"):
                page.goto(site.url + path)
                assert f"{other}.example" not in page.content()
            page.goto(site.url + "/jobs")
            expect(page.get_by_role("link", name=f"https://{name}.example/file")).to_be_visible()
        page = second
        page.goto(first.url.replace("/jobs", "/hosts"))
        assert page.title() != "Hosts · Longshore"  # hosts are the operator's

    browser.visit(visit, pages=2)


def test_hosts_are_edited_and_paused_live(site: Site, browser: Chromium) -> None:
    site.complete("https://polite.example/", b"x")

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("admin"))
        person.opens("/hosts")
        page.get_by_label("At once, polite.example").fill("3")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#told")).to_contain_text("polite.example: saved")
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("tr", has_text="polite.example")).to_contain_text("paused")
        expect(page.get_by_label("At once, polite.example")).to_have_value("3")

    browser.visit(visit)
    host = site.client("admin").get("/api/v1/hosts/polite.example").json()
    assert (host["concurrency"], host["paused"], host["state"]) == (3, True, "paused")


def test_live_pauses_while_hidden_and_goes_on(site: Site, browser: Chromium) -> None:
    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("write"))
        badge = page.locator(".live")
        expect(badge).to_have_attribute("data-state", "live")
        hide = "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); }"
        page.evaluate(f"({hide})(true)")
        expect(badge).to_have_text("paused")
        site.plan("https://hidden.example/")
        page.evaluate(f"({hide})(false)")
        expect(badge).to_have_text("live")
        expect(page.locator(".tile.pending b")).to_have_text("1")

    browser.visit(visit)


def test_keys_and_theme(site: Site, browser: Chromium) -> None:
    site.plan("https://a.example/1", "https://a.example/2")

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("read"))
        live = page.locator(".live[data-state=live]")
        expect(live).to_be_visible()  # the script listens
        page.keyboard.press("g")
        page.keyboard.press("j")
        expect(page).to_have_url(site.url + "/jobs")
        expect(live).to_be_visible()
        page.keyboard.press("j")
        chosen = page.locator("tr[aria-selected=true]")
        expect(chosen).to_contain_text("https://a.example/2")
        site.plan("https://a.example/3")
        expect(page.locator("tbody tr")).to_have_count(3)
        expect(chosen).to_contain_text("https://a.example/2")  # a live change leaves the place in the list
        page.keyboard.press("/")
        expect(page.locator("[data-search]")).to_be_focused()
        page.locator("h1").click()
        page.keyboard.press("?")
        expect(page.locator("#keys")).to_be_visible()
        page.get_by_role("button", name="Close").click()
        page.get_by_role("button", name="Switch between").click()
        theme = page.evaluate("document.documentElement.dataset.theme")
        page.reload()
        assert page.evaluate("document.documentElement.dataset.theme") == theme

    browser.visit(visit, color_scheme="light")


def test_reading_works_without_javascript(site: Site, browser: Chromium) -> None:
    site.complete("https://a.example/1", b"1")
    site.fail("https://a.example/2")

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("admin"))
        for entry in MENU:
            person.opens(entry.href)
            expect(page.locator("h1")).to_have_text(entry.title)
        person.opens("/failures")
        page.get_by_role("button", name="Retry anyway").click()  # a plain form: a question, and back to the page
        expect(page.locator("h1")).to_have_text("Retry 1 failed job (http_404, a.example)?")
        page.get_by_role("button", name="Retry 1 failed job").click()
        expect(page).to_have_url(site.url + "/failures")
        expect(page.locator("#told")).to_have_text("1 new job planned")
        expect(page.locator(".empty")).to_be_visible()
        page.reload()
        expect(page.locator("#told")).to_have_text("")  # told once
        person.opens("/jobs?host=a.example")
        page.get_by_role("button", name="Cancel all matching").click()
        expect(page.locator("h1")).to_have_text("Cancel 1 job (host a.example)?")
        page.get_by_role("link", name="No, go back").click()
        expect(page).to_have_url(site.url + "/jobs?host=a.example")
        page.get_by_role("button", name="Cancel all matching").click()
        page.get_by_role("button", name="Cancel 1 job").click()
        expect(page).to_have_url(site.url + "/jobs?host=a.example")
        expect(page.locator("#told")).to_contain_text("1 job canceled")
        person.opens("/")
        page.get_by_label("URLs, one a line").fill("https://a.example/3\nno url at all")
        page.get_by_role("button", name="Add to the depot").click()
        expect(page.locator("#told")).to_contain_text("1 job added; not added: line 2")
        page.get_by_label("URLs, one a line").fill("magnet:?xt=urn:btih:" + "0" * 40)
        page.get_by_role("button", name="Add to the depot").click()
        expect(page.locator("main")).to_contain_text("longshore torrent add")
        page.get_by_role("link", name="Overview").last.click()
        expect(page).to_have_url(site.url + "/")

    browser.visit(visit, java_script_enabled=False)


def test_the_first_run_link_opens_once(site: Site, browser: Chromium) -> None:
    site.service.first_code = "once-only"

    def visit(page: Any) -> None:
        page.goto(site.url + "/first?code=once-only")
        page.get_by_role("button", name="Open the dashboard").click()
        expect(page).to_have_url(site.url + "/")
        expect(page.locator("footer")).to_contain_text("admin")
        page.goto(site.url + "/first?code=once-only")
        page.get_by_role("button", name="Open the dashboard").click()
        expect(page.get_by_role("alert")).to_contain_text("used already")

    browser.visit(visit)


def test_hostile_names_and_urls_stay_text(site: Site, browser: Chromium) -> None:
    evil = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>"
    site.complete("https://x.example/?q=" + evil.replace("<", "%3C"), b"1", name=evil, work_id=evil)
    site.fail("https://y.example/javascript:alert(3)", message=f"the server said {evil}", name=evil)
    ran: list[str] = []

    def noticed(dialog: Any) -> None:
        ran.append(dialog.message)
        dialog.dismiss()

    def visit(page: Any) -> None:
        said = complaints(page)
        page.on("dialog", noticed)
        person = Person(page, site)
        person.signs_in(site.token("admin"))
        job = site.client("read").get("/api/v1/jobs?status=failed").json()["jobs"][0]["job_id"]
        artifact = site.client("read").get("/api/v1/artifacts").json()["artifacts"][0]["artifact_id"]
        for path in [entry.href for entry in MENU] + [f"/jobs/{job}", f"/artifacts/{artifact}"]:
            person.opens(path)
            assert page.locator("img").count() == 0, path
            assert page.locator("main script").count() == 0, path
        expect(page.locator("h1")).to_have_text(evil)
        assert said == []

    browser.visit(visit)
    assert ran == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(site: Site, browser: Chromium, theme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    site.complete("https://a.example/1", b"1", name="one.txt")
    job = site.fail("https://a.example/2")
    site.plan("https://a.example/3")
    [waiting] = site.plan("https://a.example/4")
    site.lease([waiting])
    artifact = site.client("read").get("/api/v1/artifacts").json()["artifacts"][0]["artifact_id"]
    found: dict[str, list[str]] = {}

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.opens("/sign-in")
        found["/sign-in"] = serious(Axe().run(page).response)
        person.signs_in(site.token("admin"))
        for path in [entry.href for entry in MENU] + [f"/jobs/{job}", f"/artifacts/{artifact}"]:
            person.opens(path)
            found[path] = serious(Axe().run(page).response)

    browser.visit(visit, color_scheme=theme, reduced_motion="reduce")
    assert {path: problems for path, problems in found.items() if problems} == {}


def serious(response: dict[str, Any]) -> list[str]:
    return [
        f"{item['id']}: {node['html'][:120]} {node['failureSummary'][:200]}"
        for item in response["violations"]
        if item["impact"] in ("serious", "critical")
        for node in item["nodes"]
    ]
