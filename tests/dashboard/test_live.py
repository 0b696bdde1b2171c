"""Pages that change while they are read: nothing moves under the hand, what the reader opened stays open."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from longshore.domain.model import Scope
from longshore.ledger import Move
from longshore.ledger.operations import stages
from tests.dashboard.conftest import Person
from tests.support.browser import PATIENCE_MS, Chromium
from tests.support.site import Site

pytestmark = pytest.mark.xdist_group("browser")
expect.set_options(timeout=PATIENCE_MS)
LIVE = ".live[data-state=live]"


def until(page: Any, true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not come to that")


def fragments(page: Any, path: str) -> list[str]:
    """Collect what the page asks for to refresh itself."""
    seen: list[str] = []
    page.on("request", lambda one: seen.append(one.url) if one.headers.get("x-fragment") and path in one.url else None)
    return seen


def test_a_message_moves_nothing_and_is_seen_where_the_reader_is(site: Site, browser: Chromium) -> None:
    for n in range(40):
        site.fail(f"https://host-{n:02d}.example/")

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("admin"))
        person.opens("/hosts")
        expect(page.locator(LIVE)).to_be_visible()
        row, below = (page.locator("tr", has_text=f"host-{n}.example") for n in (30, 31))
        row.scroll_into_view_if_needed()
        before = below.bounding_box()
        row.get_by_role("button", name="Pause").click()
        expect(page.locator("#told")).to_contain_text("host-30.example: saved")
        expect(page.locator("#told .note")).to_be_in_viewport()
        assert below.bounding_box() == before
        expect(row.get_by_role("button", name="Resume")).to_be_visible()
        assert below.bounding_box()["y"] == pytest.approx(
            before["y"], abs=2
        )  # the row above says when; it grows no line

    browser.visit(visit)


def test_a_refresh_leaves_details_scroll_and_focus(site: Site, browser: Chromium) -> None:
    site.plan(*(f"https://many-{n % 5}.example/{n}" for n in range(40)))
    [job] = site.plan("https://steps.example/1")
    [lease] = site.lease([job])

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("write"))
        person.opens("/")
        expect(page.locator(LIVE)).to_be_visible()
        numbers = page.locator("details", has_text="The numbers")
        numbers.locator("summary").click()
        page.evaluate("document.querySelector('[data-live=numbers] .scroll').scrollTop = 150; scrollTo(0, 200)")
        site.plan("https://many-1.example/new")
        expect(page.locator(".tile.pending b")).to_have_text("41")
        expect(numbers).to_have_attribute("open", "")
        assert page.evaluate("document.querySelector('[data-live=numbers] .scroll').scrollTop") == 150
        assert page.evaluate("scrollY") == 200
        person.opens("/jobs?status=pending")
        expect(page.locator(LIVE)).to_be_visible()
        box = page.get_by_label(re.compile("Choose job")).nth(3)
        box.check()
        expect(page.locator(".live")).to_have_text("paused: rows are ticked")
        site.plan("https://many-1.example/held")
        page.wait_for_timeout(1500)
        assert "held" not in page.locator("tbody tr").first.text_content()  # no row moves under the hand
        box.uncheck()
        expect(page.locator("tbody tr").first).to_contain_text("held")
        link = page.locator("tbody tr").nth(5).locator("a")
        named = link.text_content()
        link.focus()
        site.plan("https://many-1.example/newest")
        expect(page.locator("tbody tr").first).to_contain_text("newest")
        expect(page.locator(".live")).to_have_attribute("data-state", "live")
        assert page.evaluate("document.activeElement.textContent") == named

    browser.visit(visit)
    assert lease.epoch == 1


def test_only_what_is_shown_is_asked_for_and_at_most_once_a_second(site: Site, browser: Chromium) -> None:
    done, _ = site.complete("https://quiet.example/", b"1")
    scope_jobs = site.plan(*(f"https://noise-{n}.example/" for n in range(30)))

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("read"))
        seen = fragments(page, "/jobs")
        person.opens(f"/jobs/{done}")
        expect(page.locator(LIVE)).to_be_visible()
        until(page, lambda: len(seen) == 1)  # what changed between the page and its stream
        for job in scope_jobs[:15]:
            site.lease([job])
            page.wait_for_timeout(100)
        assert len(seen) == 1, seen
        person.opens("/jobs")
        expect(page.locator(LIVE)).to_be_visible()
        until(page, lambda: len(seen) == 2)
        for job in scope_jobs[15:]:
            [lease] = site.ledger.claim("tester", limit=1, ttl_s=3600, scope=Scope(), job_ids=[job])
            site.ledger.advance([Move(lease, "STREAMING", {"bytes_total": 10})])
            page.wait_for_timeout(100)
        page.wait_for_timeout(1500)
        assert 3 <= len(seen) <= 7, seen

    browser.visit(visit)


def test_what_was_asked_for_once_is_not_done_again(site: Site, browser: Chromium) -> None:
    site.plan(*(f"https://count.example/{n}" for n in range(3)))

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("admin"))
        seen = fragments(page, "/system")
        person.opens("/system?doctor=1")
        expect(page.locator("#doctor")).to_be_visible()
        expect(page.locator(LIVE)).to_be_visible()
        until(page, lambda: bool(seen))
        assert not any("doctor" in url for url in seen)
        expect(page.locator("#doctor")).to_be_visible()
        person.opens("/jobs?host=count.example&count=1")
        expect(page.locator(LIVE)).to_be_visible()
        site.plan("https://count.example/new")
        expect(page.locator("tbody tr")).to_have_count(4)
        expect(page.locator("#counted")).to_contain_text("3 match")  # counted once

    browser.visit(visit)


def test_a_page_says_what_its_state_is(site: Site, browser: Chromium) -> None:
    _, artifact = site.complete("https://state.example/", b"1")

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("read"))
        expect(page.locator(LIVE)).to_be_visible()
        page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
        site.plan("https://state.example/2")
        expect(page.locator(".live")).to_have_text("paused: text is selected")
        page.evaluate("getSelection().removeAllRanges()")
        expect(page.locator(".live")).to_have_text("live")
        person.opens(f"/artifacts/{artifact}")  # nothing on it changes
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator(".live")).to_be_hidden()

    browser.visit(visit)


def test_the_transfers_of_another_process_move_while_they_are_watched(site: Site, browser: Chromium) -> None:
    [job] = site.plan("https://far.example/large.tar")
    [lease] = site.ledger.claim("another machine", limit=1, ttl_s=3600, scope=Scope(), job_ids=[job])
    site.ledger.advance([Move(lease, "STREAMING", {"bytes_total": 100 << 20, "resumed_from_bytes": 0})])
    site.ledger.write(stages.report, [(lease, 10 << 20, 100 << 20)])

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("read"))
        row = page.locator('[data-live="active"] tbody tr')
        expect(row).to_contain_text("10.0 MiB of 100 MiB")
        row.evaluate("row => { row.seen = true; }")
        site.ledger.write(stages.report, [(lease, 40 << 20, 100 << 20)])
        expect(row).to_contain_text("40.0 MiB of 100 MiB")
        expect(row.locator("progress")).to_have_attribute("value", "40")
        expect(row).to_contain_text("/s")
        assert row.evaluate("row => row.seen")  # the same row, patched
        expect(page.locator('[data-live="active"]')).to_contain_text("1 receiving")

    browser.visit(visit)


def test_pages_and_scripts_are_compressed_and_a_fragment_has_no_frame(site: Site) -> None:
    site.plan(*(f"https://long.example/{n}" for n in range(50)))
    client = site.client("read")
    whole = client.get("/jobs")
    packed = client.get("/jobs", headers={"Accept-Encoding": "gzip"})
    times = re.compile(rb"<time.*?</time>|ago")
    assert times.sub(b"", gzip.decompress(packed.body)) == times.sub(b"", whole.body)
    assert len(packed.body) * 4 < len(whole.body)
    assert "Accept-Encoding" in packed.headers["vary"]
    part = client.get("/jobs", headers={"X-Fragment": "1"}).text
    assert '<nav class="nav"' not in part
    assert 'data-live="jobs"' in part
    script = client.get("/static/uplot.js", headers={"Accept-Encoding": "gzip"})
    assert gzip.decompress(script.body) == client.get("/static/uplot.js").body
