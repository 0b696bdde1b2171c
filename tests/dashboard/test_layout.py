"""On a phone and on a wide screen nothing is cut off, everything can be reached and touched; files that are no lists are offered for upload."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from longshore.domain.model import Scope
from longshore.ledger import Move
from longshore.ledger.operations import stages
from longshore.web.dashboard.pages import MENU
from tests.dashboard.conftest import Person
from tests.dashboard.test_browser import serious
from tests.support.browser import PATIENCE_MS, Chromium
from tests.support.site import Site

pytestmark = pytest.mark.xdist_group("browser")
expect.set_options(timeout=PATIENCE_MS)
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
# What reaches beyond the page, or beyond its own card.
OUTSIDE = """() => [...document.querySelectorAll('main button, main .button, main progress, main .progress, main input, .nav a')]
  .filter((one) => { const box = one.getBoundingClientRect(); const card = (one.closest('.card') ?? document.body).getBoundingClientRect();
    return box.width && (box.right > Math.min(innerWidth, card.right) + 1 || box.left < card.left - 1); })
  .map((one) => one.outerHTML.slice(0, 120))"""
SMALL = """() => [...document.querySelectorAll('main button, main .button, .nav a, .tabs a, .pager a')]
  .filter((one) => { const box = one.getBoundingClientRect(); return box.width && (box.height < 40 || box.width < 24); })
  .map((one) => one.outerHTML.slice(0, 120))"""
# A placeholder or value that is wider than its field.
CLIPPED = """() => [...document.querySelectorAll('main .inline input:not([type=hidden])')].filter((one) => {
  const style = getComputedStyle(one); const pen = document.createElement('canvas').getContext('2d'); pen.font = style.font;
  return pen.measureText(one.placeholder).width > one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) + 1; })
  .map((one) => [one.placeholder, one.clientWidth, getComputedStyle(one).font])"""


def filled(site: Site) -> list[str]:
    """Fill a depot; return the addresses of its pages."""
    _, artifact = site.complete("https://a.example/1", b"1", name="one.txt")
    failed = site.fail(
        "https://b.example/a/rather/long/path/that/goes/on/for/a/while/2402.00037v1.pdf", reason="http_429"
    )
    [running] = site.plan("https://c.example/a-very-long-file-name-of-a-corpus-that-does-not-fit-into-one-line.tar.zst")
    [lease] = site.ledger.claim("tester", limit=1, ttl_s=3600, scope=Scope(), job_ids=[running])
    site.ledger.advance([Move(lease, "STREAMING", {"bytes_total": 1 << 40})])
    site.ledger.write(stages.report, [(lease, 123_456_789_012, 1 << 40)])
    site.plan("https://d.example/4")
    own = [f"/jobs/{failed}", f"/jobs/{running}", f"/artifacts/{artifact}", "/search?q=example"]
    return [entry.href for entry in MENU] + own


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_cut_off(site: Site, browser: Chromium, width: int) -> None:
    paths = filled(site)
    found: dict[str, Any] = {}

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("admin"))
        for path in paths:
            person.opens(path)
            wide = page.evaluate("document.documentElement.scrollWidth > innerWidth + 1")
            small = page.evaluate(SMALL) if width == 390 else []
            if trouble := [*page.evaluate(OUTSIDE), *small, *(["page is wider than the screen"] if wide else [])]:
                found[path] = trouble
            if page.evaluate(CLIPPED):
                found[path + " fields"] = page.evaluate(CLIPPED)

    options: dict[str, Any] = PHONE if width == 390 else {"viewport": {"width": width, "height": 900}}
    browser.visit(visit, **options)
    assert found == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_a_phone(site: Site, browser: Chromium, theme: str) -> None:
    paths = filled(site)
    found: dict[str, list[str]] = {}

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("admin"))
        for path in paths:
            person.opens(path)
            if problems := serious(Axe().run(page).response):
                found[path] = problems

    browser.visit(visit, color_scheme=theme, reduced_motion="reduce", **PHONE)
    assert found == {}


def test_the_chart_is_there_without_a_script(site: Site, browser: Chromium) -> None:
    site.complete("https://a.example/1", b"x" * 50_000)

    def visit(page: Any) -> None:
        Person(page, site).signs_in(site.token("read"))
        line = page.locator(".chart polyline")
        assert len({point.split(",")[1] for point in line.get_attribute("points").split()}) > 1
        expect(page.locator(".chart")).to_contain_text("bytes per second, at most")

    browser.visit(visit, java_script_enabled=False)


def test_a_dropped_pdf_is_offered_for_upload_and_a_list_is_not(site: Site, browser: Chromium) -> None:
    drop = """([name, text]) => { const data = new DataTransfer(); data.items.add(new File([text], name, { type: name.endsWith('pdf') ? 'application/pdf' : 'text/plain' }));
      document.querySelector('.drop').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true })); }"""

    def visit(page: Any) -> None:
        person = Person(page, site)
        person.signs_in(site.token("write"))
        expect(page.locator(".live[data-state=live]")).to_be_visible()
        page.evaluate(drop, ["paper.pdf", "%PDF-1.7\n dropped"])
        expect(page.locator(".offer")).to_contain_text("paper.pdf: this is not a list of URLs")
        expect(page.locator("#lines")).to_have_value("")
        page.get_by_role("button", name="Upload it").click()
        expect(page.locator("#told")).to_contain_text("paper.pdf is stored")
        page.evaluate(drop, ["urls.txt", "https://dropped.example/1\n"])
        expect(page.locator("#lines")).to_have_value("https://dropped.example/1\n")
        expect(page.locator(".offer")).to_be_hidden()

    browser.visit(visit)
    [artifact] = site.client("read").get("/api/v1/artifacts").json()["artifacts"]
    assert (artifact["name"], artifact["content_type"]) == ("paper.pdf", "application/pdf")


def test_an_idle_worker_of_this_server_is_not_nobody(site: Site) -> None:
    client = site.client("admin")
    assert "this server does not work on jobs" in client.get("/system").text
