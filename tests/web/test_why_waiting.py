"""Why a job waits, and that a running one does not show what an earlier attempt ran into."""

from __future__ import annotations

import re

from longshore.domain.model import Scope
from longshore.domain.outcomes import Deferred
from longshore.domain.settings import HostsSettings
from longshore.ledger import Ledger
from longshore.ledger.operations import hosts
from longshore.ledger.queries.why_waiting import JobWait, why_waiting
from tests.ledger.acts import HOME, plan
from tests.support.ledgers import Clock
from tests.support.site import Site

LIMITS = HostsSettings()


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))


def test_each_wait_has_its_reason(ledger: Ledger, clock: Clock) -> None:
    [paused] = plan(ledger, host="paused.example")
    ready = plan(ledger, 3, host="ready.example")
    [late] = plan(ledger, host="late.example")
    [resting] = plan(ledger, host="resting.example")
    ledger.write(hosts.set_host, "paused.example", {"paused": True})
    [lease] = ledger.claim("w", limit=1, ttl_s=60, scope=HOME, job_ids=[late])
    ledger.settle([(lease, Deferred("http_503", "the server answered 503", 90.0))])
    [lease] = ledger.claim("w", limit=1, ttl_s=60, scope=HOME, job_ids=[resting])
    ledger.settle([(lease, Deferred("http_429", "slow down", 5.0, host_rest_s=300.0))])
    found = ledger.read(why_waiting, HOME, LIMITS, [paused, *ready, late, resting], with_place=True)
    assert found[paused] == JobWait("paused", "paused.example", "paused", None, 0, 0)
    assert [found[job].ahead for job in ready] == [0, 1, 2]
    assert {found[job].kind for job in ready} == {"turn"}
    assert (found[late].kind, found[late].reason, found[late].attempts) == ("backoff", "http_503", 1)
    assert (found[late].until or 0) > clock.now
    assert (found[resting].kind, found[resting].until) == ("resting", clock.now + 300_000_000)
    [running] = ledger.claim("w", limit=1, ttl_s=60, scope=HOME, job_ids=ready[:1])
    assert ledger.read(why_waiting, HOME, LIMITS, [running.job_id]) == {}
    assert ledger.read(why_waiting, Scope("other", "main"), LIMITS, ready) == {}


def test_the_pages_say_why(site: Site) -> None:
    scope = Scope("why", "default")
    jobs = site.plan(*(f"https://waits.example/{n}" for n in range(3)), scope=scope)
    client = site.client("read", tenant="why")
    assert "Ready: the next free worker takes it." in words(client.get(f"/jobs/{jobs[0]}").text)
    assert "2 jobs of waits.example are ahead of it." in words(client.get(f"/jobs/{jobs[2]}").text)
    site.ledger.write(hosts.set_host, "waits.example", {"paused": True})
    assert "The host waits.example is paused until an operator resumes it." in words(
        client.get(f"/jobs/{jobs[0]}").text
    )
    assert "host paused" in words(client.get("/jobs").text)


def test_a_running_job_does_not_show_an_earlier_error_as_its_own(site: Site) -> None:
    scope = Scope("again", "default")
    [job] = site.plan("https://again.example/", scope=scope)
    [lease] = site.lease([job], scope)
    site.ledger.settle([(lease, Deferred("http_503", "the server answered 503", 0.0))])
    client = site.client("read", tenant="again")
    assert "the server answered 503" in client.get("/jobs").text
    for _ in range(600):
        if site.ledger.claim("tester", limit=1, ttl_s=3600, scope=scope, job_ids=[job]):
            break
    assert client.get(f"/jobs/{job}.json").json()["job"]["status"] == "processing"
    assert "the server answered 503" not in client.get("/jobs").text
    assert "Earlier attempt: http_503" in words(client.get(f"/jobs/{job}").text)
