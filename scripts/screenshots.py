"""Write docs/images/*.png: every page of the dashboard in both themes, over a depot with an hour of work. `make screenshots`"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Any

from longshore.domain.model import SECOND, Scope
from longshore.domain.outcomes import Deferred
from longshore.domain.torrents import torrent_request
from longshore.ledger import Ledger, advancing, hosts, tokens
from longshore.ledger.torrents import start_torrent
from longshore.store import StoreSettings, open_store
from longshore.torrents.identity import from_magnet
from tests.support.browser import Chromium, chromium
from tests.support.site import Site

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
HOSTS = ("arxiv.org", "export.arxiv.org", "www.ncbi.nlm.nih.gov", "zenodo.org", "journals.plos.org", "hal.science")
MAGNET = "magnet:?xt=urn:btih:{:040x}&dn={}"


class Clock:
    """The ledger's time, set back so that an hour of work fits into a second."""

    def __init__(self) -> None:
        self.now = time.time_ns() // 1000 - 58 * 60 * SECOND

    def __call__(self) -> int:
        return self.now

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.now += int(seconds * SECOND)


def an_hour_of_work(site: Site, clock: Clock) -> dict[str, str]:
    """Fill a depot as a busy hour would."""
    chance = random.Random(7)
    end = time.time_ns() // 1000
    shown: dict[str, str] = {}
    number = 0
    while clock.now < end - 20 * SECOND:
        clock.now += int(chance.expovariate(1 / 14) * SECOND)
        number += 1
        host = chance.choice(HOSTS)
        url = f"https://{host}/pdf/24{number % 12 + 1:02d}.{10_000 + number}v1.pdf"
        draw = chance.random()
        if draw < 0.05:
            shown["failed"] = site.fail(url, work_id=f"W{2_740_000 + number}")
        elif draw < 0.07:
            site.fail(url, reason="blocked_challenge", message="a challenge page came instead of the file")
        else:
            body = b"%PDF-1.7\n" + chance.randbytes(chance.choice((9_000, 60_000, 400_000, 900_000)))
            if draw > 0.9:
                body = b"%PDF-1.7\n" + b"the same paper again" * 9000
            name = f"24{number % 12 + 1:02d}.{10_000 + number}v1.pdf"
            about = {"name": name, "work_id": f"W{2_740_000 + number}", "media_type": "application/pdf"}
            shown["completed"], shown["artifact"] = site.complete(
                url, body, tick=lambda: clock.pass_by(chance.uniform(0.002, 0.4)), **about
            )
    clock.now = end
    later = site.lease(site.plan("https://zenodo.org/records/77/files/busy.tar"))[0]
    rest = Deferred("http_503", "the server answered 503 and asks for 90 s", 90.0, host_rest_s=90.0)
    site.ledger.settle([(later, rest)])
    running = site.plan(*(f"https://{host}/bulk/corpus-{n}.tar.zst" for n, host in enumerate((*HOSTS[:2], *HOSTS[4:]))))
    leases = site.lease(running)
    site.ledger.write(advancing.report, [(lease, 10_000 * (n + 2), 61_000) for n, lease in enumerate(leases)])
    site.plan(*(f"https://hal.science/hal-{n:08d}/document" for n in range(1240)))
    site.ledger.write(hosts.set_host, "journals.plos.org", {"concurrency": 2, "rate_per_s": 0.33})
    site.ledger.write(hosts.set_host, "www.ncbi.nlm.nih.gov", {"paused": True})
    for n, book in enumerate(("moby-dick", "lord-jim", "typhoon")):
        source = MAGNET.format(n + 0xABCDEF, book)
        asked = torrent_request(
            Scope(), user_id="ada", book_id=book, media_type="audiobook", source=source, identity=from_magnet(source)
        )
        site.ledger.write(start_torrent, asked)
    site.token("metrics", name="prometheus")
    site.token("write", name="nightly import", expires_s=30 * 86_400)
    for path in ("/api/v1/jobs:batch", "/api/v1/jobs:retry", "/hosts/set"):
        site.ledger.write(
            tokens.audit, Scope(), tokens.NewEntry("nightly-import", "post", path, "10.0.0.7", {"status": 200})
        )
    return shown


def pages(shown: dict[str, str]) -> dict[str, str]:
    """Name every picture and its page."""
    return {
        "overview": "/",
        "jobs": "/jobs",
        "job": f"/jobs/{shown['completed']}",
        "job-failed": f"/jobs/{shown['failed']}",
        "failures": "/failures",
        "hosts": "/hosts",
        "artifacts": "/artifacts",
        "artifact": f"/artifacts/{shown['artifact']}",
        "torrents": "/torrents",
        "system": "/system",
    }


def take(site: Site, browser: Chromium, theme: str, wanted: dict[str, str], **options: Any) -> None:
    """Sign in and picture every page."""
    secret = site.token("admin", name="operator")
    suffix = "-phone" if options else ""

    def visit(page: Any) -> None:
        page.goto(site.url + "/sign-in")
        page.screenshot(path=IMAGES / f"sign-in-{theme}{suffix}.png")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(site.url + "/")
        for name, path in wanted.items():
            page.goto(site.url + path)
            if page.locator("[data-live]").count():
                page.locator('.live[data-state="live"]').wait_for()
            if path == "/":
                page.locator(".uplot canvas").wait_for()
            page.screenshot(path=IMAGES / f"{name}-{theme}{suffix}.png")

    browser.visit(visit, color_scheme=theme, reduced_motion="reduce", **options)


def main() -> None:
    """Write all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        ledger = Ledger.open(Path(folder, "ledger.db"), create=True, clock=clock)
        with Site(ledger, open_store(str(Path(folder, "store")), StoreSettings())) as site:
            wanted = pages(an_hour_of_work(site, clock))
            for theme in ("light", "dark"):
                take(site, browser, theme, wanted)
            phone = {"viewport": {"width": 390, "height": 800}, "device_scale_factor": 2}
            take(site, browser, "light", {name: wanted[name] for name in ("overview", "jobs", "job")}, **phone)


if __name__ == "__main__":
    main()
