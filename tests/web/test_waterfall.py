"""Where a job's time went: its waits, claims, transfer and finalising cover its whole life, and steps say what they are."""

from __future__ import annotations

import re

from longshore.domain.model import SECOND, Micros, Scope
from longshore.domain.outcomes import Deferred
from longshore.ledger import Intent, Ledger, Move
from longshore.ledger.queries import lookup
from longshore.web import queries
from longshore.web.dashboard import timeline
from longshore.web.dashboard.render import stamp
from longshore.web.dashboard.waterfall import waterfall
from longshore.web.serializers import View
from tests.ledger.acts import HOME, finalize, held, plan, settle
from tests.support.ledgers import Clock
from tests.support.site import Site


def detail_of(ledger: Ledger, job: str) -> View:
    detail: View = ledger.read(queries.job_detail, HOME, job, str)
    return detail


def at(now: Micros) -> str:
    return stamp(now) or ""


def test_every_second_of_a_job_is_in_a_bar(ledger: Ledger, clock: Clock) -> None:
    [job] = plan(ledger)
    clock.sleep(10)
    [first] = ledger.claim("w", limit=1, ttl_s=600, scope=HOME, job_ids=[job])
    clock.sleep(4)
    ledger.settle([(first, Deferred("http_503", "the server answered 503", 0.001))])
    clock.sleep(6)
    [second] = ledger.claim("w", limit=1, ttl_s=600, scope=HOME, job_ids=[job])
    clock.sleep(1)
    ledger.advance([Move(second, "STREAMING", {"bytes_total": 10})])
    clock.sleep(60)
    ledger.begin([finalize(second)])
    clock.sleep(2)
    settle(ledger, second, held(1))
    detail = detail_of(ledger, job)
    lanes = waterfall(detail, at(clock.now))["lanes"]
    assert [[(bar["what"], bar["took_s"]) for bar in lane["bars"]] for lane in lanes] == [
        [("waiting", 10), ("claimed", 4)],
        [("waiting", 6), ("claimed", 1), ("transfer", 60), ("finalise", 2)],
    ]
    assert [lane["how"] for lane in lanes] == ["deferred: http_503", "completed"]
    assert lanes[1]["text"] == "waiting 6.0 s · claimed 1.0 s · transfer 1 min · finalise 2.0 s"
    assert all(0 <= bar["x"] <= bar["x"] + bar["width"] <= 1000 for lane in lanes for bar in lane["bars"])
    steps = {step["title"]: step["took_s"] for step in timeline.steps(detail)}
    assert steps["Received the whole body"] == 60
    assert "Transfer began" in steps
    assert "Stage" not in steps
    assert ledger.read(lookup.job, HOME, job).attempts == 2
    assert isinstance(finalize(second), Intent)


def test_a_waiting_job_has_one_bar_and_a_running_one_ends_now(ledger: Ledger, clock: Clock) -> None:
    [job] = plan(ledger)
    clock.sleep(30)
    [lane] = waterfall(detail_of(ledger, job), at(clock.now))["lanes"]
    assert (lane["text"], clock.now % SECOND) == ("waiting 30 s", 0)
    ledger.claim("w", limit=1, ttl_s=600, scope=HOME, job_ids=[job])
    clock.sleep(5)
    [lane] = waterfall(detail_of(ledger, job), at(clock.now))["lanes"]
    assert (lane["text"], lane["how"]) == ("waiting 30 s · claimed 5.0 s", "running")


def test_the_page_draws_it_without_a_script(site: Site) -> None:
    scope = Scope("drawn", "default")
    job, _ = site.complete("https://drawn.example/", b"1", scope=scope)
    page = site.client("read", tenant="drawn").get(f"/jobs/{job}").text
    assert re.search(r'<rect class="transfer" x="[\d.]+" y="3" width="[\d.]+"', page)
    assert "style=" not in page  # the content policy has no inline styles
    assert "attempt 1" in page
