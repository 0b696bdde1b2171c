"""Write docs/images/*.png: every page of the dashboard in both themes, over a depot with an hour of work. `make screenshots`"""

from __future__ import annotations

import math
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from longshore.domain.kinds import Status
from longshore.domain.model import SECOND, JobRequest, Scope
from longshore.domain.outcomes import Deferred
from longshore.domain.torrents.model import torrent_request
from longshore.domain.torrents.sync_rules import PollState
from longshore.ledger import JobFilter, Ledger
from longshore.ledger.operations import audit_log, hosts, stages
from longshore.ledger.operations.torrents import Noted, note_torrents, start_torrent
from longshore.ledger.queries.torrents import torrent
from longshore.store import open_store
from longshore.worker.kinds.torrent.identity import from_magnet
from tests.support.browser import Chromium, chromium
from tests.support.site import Site

IMAGES = Path(os.environ.get("IMAGES", Path(__file__).resolve().parent.parent / "docs" / "images"))
HOSTS = ("arxiv.org", "export.arxiv.org", "www.ncbi.nlm.nih.gov", "zenodo.org", "journals.plos.org", "hal.science")
ON_A_PHONE = ("overview", "jobs", "job", "failures", "hosts")
MAGNET = "magnet:?xt=urn:btih:{:040x}&dn={}"


class Clock:
    """The ledger's time, set back so that an hour of work fits into a second."""

    def __init__(self) -> None:
        self.now = time.time_ns() // 1000 - 58 * 60 * SECOND

    def __call__(self) -> int:
        return self.now

    def pass_by(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += int(seconds * SECOND)


def an_hour_of_work(site: Site, clock: Clock) -> dict[str, str]:
    """Fill a depot with the jobs of a busy hour."""
    chance = random.Random(7)
    end = time.time_ns() // 1000
    shown = arrivals(site, clock, chance, end)
    clock.now = end
    failures(site, chance)
    transfers(site, chance)
    clock.pass_by(24)
    site.plan(*(f"https://hal.science/hal-{n:08d}/document" for n in range(4_240)))
    site.ledger.plan(
        Scope(), [JobRequest("pdf_text", f"pdf_text:{n}", name=f"text of W{2_740_000 + n}") for n in range(3)]
    )
    site.ledger.write(hosts.set_host, "journals.plos.org", {"concurrency": 2, "rate_per_s": 0.33})
    site.ledger.write(hosts.set_host, "www.ncbi.nlm.nih.gov", {"paused": True})
    torrents(site)
    site.token("metrics", name="prometheus")
    site.token("write", name="nightly import", expires_s=30 * 86_400)
    for path in ("/api/v1/jobs:batch", "/api/v1/jobs:retry", "/hosts/set"):
        entry = audit_log.NewEntry("nightly-import", "post", path, "10.0.0.7", {"status": 200})
        site.ledger.write(audit_log.audit, Scope(), entry)
    return shown


def arrivals(site: Site, clock: Clock, chance: random.Random, end: int) -> dict[str, str]:
    """Add an hour of downloads: bursts, pauses, some duplicates."""
    shown: dict[str, str] = {}
    number = 0
    while clock.now < end - 20 * SECOND:
        pace = 2.0 + 1.6 * math.sin(clock.now / SECOND / 400)
        clock.now += int(chance.expovariate(1 / pace) * SECOND)
        number += 1
        month = f"24{number % 12 + 1:02d}"
        url = f"https://{chance.choice(HOSTS)}/pdf/{month}.{10_000 + number}v1.pdf"
        body = b"%PDF-1.7\n" + chance.randbytes(chance.choice((9_000, 60_000, 140_000, 240_000)))
        if chance.random() > 0.88:
            body = b"%PDF-1.7\n" + b"the same paper again" * 9_000
        about = {"name": f"{month}.{10_000 + number}v1.pdf", "work_id": f"W{2_740_000 + number}"}
        shown["completed"], shown["artifact"] = site.complete(
            url, body, tick=lambda: clock.pass_by(chance.uniform(0.002, 0.4)), media_type="application/pdf", **about
        )
    return shown


def failures(site: Site, chance: random.Random) -> None:
    """Add permanent failures with several reasons and hosts, one of them with a long URL."""
    kinds = (
        ("http_404", "the server answered 404", 41), ("blocked_challenge", "a challenge page came instead of the file", 17),
        ("html_page", "a web page came instead of a PDF", 9), ("tls", "the certificate has expired", 4),
        ("truncated", "the connection ended after 1,048,576 of 4,194,304 bytes", 2),
    )  # fmt: skip
    for reason, message, many in kinds:
        for number in range(many):
            host = chance.choice(HOSTS[: 2 + many % 4])
            site.fail(f"https://{host}/pdf/{reason}/2402.{number:05d}v1.pdf", reason=reason, message=message)
    long = "/very/deep" * 14 + "/supplement-with-a-long-name.zip?" + "&".join(f"part{n}=value{n}" for n in range(12))
    site.fail("https://publisher.example" + long, reason="http_403", message="the server answered 403")


def transfers(site: Site, chance: random.Random) -> None:
    """Add running transfers, and one host that asked for a pause."""
    later = site.lease(site.plan("https://zenodo.org/records/77/files/busy.tar"))[0]
    rest = Deferred("http_503", "the server answered 503 and asks for 90 s", 90.0, host_rest_s=90.0)
    site.ledger.settle([(later, rest)])
    urls = [f"https://{host}/bulk/corpus-{n}.tar.zst" for n, host in enumerate((*HOSTS[:2], *HOSTS[4:]) * 2)]
    leases = site.lease(site.plan(*urls))
    site.ledger.write(stages.report, [(lease, chance.randrange(90_000, 610_000), 610_000) for lease in leases])


def torrents(site: Site) -> None:
    """Add waiting, running and failed torrents."""
    books = ("moby-dick", "lord-jim", "typhoon", "nostromo", "the-secret-agent")
    for number, book in enumerate(books):
        source = MAGNET.format(number + 0xABCDEF, book)
        asked = torrent_request(
            Scope(), user_id="ada", book_id=book, media_type="audiobook", source=source, identity=from_magnet(source)
        )
        job = site.ledger.read(torrent, Scope(), site.ledger.write(start_torrent, asked).job_id)
        infohash = f"{number + 0xABCDEF:040x}"
        watch = PollState(added_at=1, seen_at=1, done_bytes=(19 * number % 97) << 20, size_bytes=97 << 20, name=book)
        if 0 < number < 4:
            site.ledger.write(note_torrents, [Noted(job, watch, "downloading", external_job_id=infohash)])
        elif number == 4:
            message = "qBittorrent no longer knows it for 60 s"
            failed = Noted(job, watch, "failed", infohash, reason="missing_external_job", message=message)
            site.ledger.write(note_torrents, [failed])


def pages(shown: dict[str, str]) -> dict[str, str]:
    """Return the page of every screenshot."""
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
    """Sign in and take a screenshot of every page."""
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
    """Write all screenshots."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        ledger = Ledger.open(Path(folder, "ledger.db"), create=True, clock=clock)
        with Site(ledger, open_store(str(Path(folder, "store")))) as site:
            shown = an_hour_of_work(site, clock)
            [failed] = ledger.matching_ids(Scope(), JobFilter(status=Status.FAILED, reason="http_403"), at_most=1)
            wanted = pages(shown | {"failed": failed})
            for theme in ("light", "dark"):
                take(site, browser, theme, wanted)
            phone = {"viewport": {"width": 390, "height": 800}, "device_scale_factor": 2}
            take(site, browser, "light", {name: wanted[name] for name in ON_A_PHONE}, **phone)


if __name__ == "__main__":
    main()
