"""Hosts that are given up, and trails: on both engines, by the ledger's clock."""

from __future__ import annotations

from longshore import compat
from longshore.domain.model import Scope, Status
from longshore.domain.outcomes import Blame, Deferred, Failed
from longshore.domain.settings import HostsSettings
from longshore.domain.transfer import mirrors
from longshore.domain.transfer.mirrors import Trail, Tried
from longshore.ledger import Ledger
from longshore.ledger.operations import hosts
from longshore.ledger.operations.give_up_host import GivenUpHost, give_up_host
from longshore.ledger.operations.hosts import given_up_hosts, hop, rests
from longshore.ledger.queries.due_work import Wait, waits, waits_of, work_due
from tests.ledger.acts import HOME, held, lease, plan, settle
from tests.support.ledgers import Clock

MANNERS = HostsSettings(concurrency=4, breaker_failures=3, breaker_cooldown_s=30, give_up_s=60)
OTHER = Scope("other", "main")
SILENT = (Blame("h.example", "connect", silent=True),)


def fail(ledger: Ledger, times: int = 1) -> None:
    """Let claimed jobs find nobody."""
    granted = ledger.claim("w", limit=times, ttl_s=60, defaults=MANNERS)
    assert len(granted) == times
    for one in granted:
        settle(ledger, one, Deferred("connect", "refused", 0.001, blames=SILENT))


def given(ledger: Ledger, many: int = 500) -> GivenUpHost:
    return ledger.write(give_up_host, "h.example", defaults=MANNERS, max_attempts=5, many=many)


def die(ledger: Ledger, clock: Clock) -> None:
    """Let the host be silent until it is given up."""
    fail(ledger, 3)
    for _ in range(2):
        clock.sleep(30)
        assert ledger.read(given_up_hosts, defaults=MANNERS) == {}
        assert given(ledger).failed == []
        fail(ledger)


def test_one_probe_speaks_for_the_jobs_of_all_tenants(ledger: Ledger, clock: Clock) -> None:
    plan(ledger, 7)
    plan(ledger, 5, scope=OTHER)
    plan(ledger, 2, host="good.example")
    ledger.write(hosts.set_host, "good.example", {"paused": True})
    die(ledger, clock)
    assert list(ledger.read(given_up_hosts, defaults=MANNERS)) == ["h.example"]
    first, second = given(ledger, many=10), given(ledger, many=10)
    assert (len(first.failed), first.more, len(second.failed), second.more) == (10, True, 2, False)
    assert {gone.scope for gone in (*first.failed, *second.failed)} == {HOME, OTHER}
    job = ledger.job(HOME, next(gone.job_id for gone in first.failed if gone.scope == HOME))
    assert (job.status, job.stage, job.reason) == (Status.FAILED, "FAILED", "connect")
    assert (job.message or "").startswith("h.example has not answered since 20")
    assert "(5 requests)" in (job.message or "")
    assert ledger.counts(HOME)[Status.FAILED] == 7
    assert ledger.counts(OTHER)[Status.FAILED] == 5
    assert ledger.read(work_due, OTHER, ["download"]) is None  # nothing waits for the rest of a host without jobs


def test_who_is_planned_after_the_verdict_waits_for_the_next_probe(ledger: Ledger, clock: Clock) -> None:
    plan(ledger, 4)
    die(ledger, clock)
    clock.sleep(1)
    (late,) = plan(ledger, 1, start=50)
    assert len(given(ledger).failed) == 4
    assert ledger.job(HOME, late).status is Status.PENDING
    assert ledger.claim("w", limit=9, ttl_s=60, defaults=MANNERS) == []
    clock.sleep(30)
    (probe,) = ledger.claim("w", limit=9, ttl_s=60, defaults=MANNERS)
    assert probe.job_id == late
    settle(ledger, probe, held())
    assert given(ledger).failed == []
    (host,) = ledger.read(hosts.hosts)
    assert host.failures == 0


def test_an_answer_of_any_kind_ends_the_silence(ledger: Ledger, clock: Clock) -> None:
    plan(ledger, 8)
    fail(ledger, 3)
    clock.sleep(30)
    (probe,) = ledger.claim("w", limit=1, ttl_s=60, defaults=MANNERS)
    settle(ledger, probe, Failed("http_404", "gone", blames=(Blame("h.example", "http_404", heard=True),)))
    clock.sleep(31)
    fail(ledger, 3)
    assert ledger.read(given_up_hosts, defaults=MANNERS) == {}


def test_a_silence_that_nobody_listened_to_begins_anew(ledger: Ledger, clock: Clock) -> None:
    plan(ledger, 8)
    fail(ledger, 3)
    clock.sleep(24 * 3600)
    fail(ledger)
    assert ledger.read(given_up_hosts, defaults=MANNERS) == {}


def test_a_name_that_does_not_exist_needs_no_second_probe(ledger: Ledger, clock: Clock) -> None:
    plan(ledger, 5)
    none = Blame("h.example", "dns", silent=True, nameless=True)
    settle(ledger, lease(ledger), Failed("dns", "no such name: h.example", blames=(none,)))
    assert [gone.message for gone in given(ledger).failed] == ["no such name: h.example"] * 4


def test_jobs_with_another_candidate_go_on_there(ledger: Ledger, clock: Clock) -> None:
    ids = plan(ledger, 3, mirrors=("https://h.example/copy", "https://m.example/copy"))
    plan(ledger, 3, start=10)
    die(ledger, clock)
    done = given(ledger)
    assert (len(done.failed), done.moved) == (3, 3)
    moved = [granted for granted in ledger.claim("w", limit=9, ttl_s=60, defaults=MANNERS) if granted.job_id in ids]
    assert {granted.job.request.host for granted in moved} == {"m.example"}
    for granted in moved:
        assert mirrors.next_of(3, mirrors.read(granted.job.trail)) == 2


def test_a_trail_is_kept_by_hops_and_endings(ledger: Ledger) -> None:
    (job_id,) = plan(ledger, 1, mirrors=("https://m.example/copy",))
    granted = lease(ledger)
    trail = Trail(tried={0: Tried(0, "http_404", "gone", definite=True)})
    assert ledger.write(hop, granted, "m.example", defaults=MANNERS, trail=trail.text())
    assert mirrors.read(ledger.job(HOME, job_id).trail) == trail
    compat.release_lease(ledger, granted)
    assert mirrors.read(ledger.job(HOME, job_id).trail) == trail  # nothing said: as it was
    settle(ledger, lease(ledger), Deferred("connect", "x", 0.0, trail=""))
    assert ledger.job(HOME, job_id).trail is None


def test_progress_gives_its_claim_back(ledger: Ledger) -> None:
    (job_id,) = plan(ledger, 1)
    for _ in range(3):
        granted = lease(ledger)
        compat.advance_state(ledger, granted, "STREAMING")
        settle(ledger, granted, Deferred("truncated", "x", 0.0, progressed=True))
    assert (ledger.job(HOME, job_id).claims, ledger.job(HOME, job_id).attempts) == (0, 3)


def test_what_a_run_waits_for(ledger: Ledger, clock: Clock) -> None:
    plan(ledger, 3)
    plan(ledger, 2, host="busy.example")
    (theirs,) = ledger.claim("they", limit=1, ttl_s=60, defaults=MANNERS)
    resting = "h.example" if theirs.job.request.host == "busy.example" else "busy.example"
    one = next(one for one in ledger.claim("w", limit=9, ttl_s=60, defaults=MANNERS) if one.job.request.host == resting)
    rest = Blame(resting, "http_503", heard=True, rest_s=900.0)
    settle(ledger, one, Deferred("http_503", "x", 900.0, blames=(rest,)))
    assert ledger.read(rests, resting, HOME.tenant_id, defaults=MANNERS)
    found = {(wait.host, wait.reason): wait for wait in ledger.read(waits, HOME, "w", MANNERS)}
    assert found[resting, "http_503"].jobs == 1
    assert found[resting, "http_503"].until == clock.now + 900_000_000
    assert found[None, "leased"].jobs == 1


def test_a_run_waits_for_a_host_whose_breaker_is_open(ledger: Ledger, clock: Clock) -> None:
    """Its rest is decided by its faults and written nowhere, and runs of named jobs park no lanes."""
    job_ids = plan(ledger, 5)
    fail(ledger, 3)
    failed_at = clock.now
    clock.sleep(1)
    rest = Wait("h.example", "connect", failed_at + 30_000_000, 5)
    assert ledger.read(waits, HOME, "w", MANNERS) == [rest]
    assert ledger.read(waits_of, HOME, "w", MANNERS, job_ids) == [rest]
    clock.sleep(30)
    assert ledger.read(waits_of, HOME, "w", MANNERS, job_ids[3:]) == []


def test_faults_speak_for_the_jobs_that_were_asked_for(ledger: Ledger, clock: Clock) -> None:
    """The others are asked for once each, at the host's usual pace; `given_up_hosts` names the host for the worker."""
    plan(ledger, 9)
    fault = (Blame("h.example", "http_500", heard=True),)
    for wait in (0, 30, 30):
        clock.sleep(wait)
        for one in ledger.claim("w", limit=3, ttl_s=60, defaults=MANNERS):
            settle(ledger, one, Deferred("http_500", "h.example answered 500", 900.0, blames=fault))
    assert list(ledger.read(given_up_hosts, defaults=MANNERS)) == ["h.example"]
    done = given(ledger)
    assert (len(done.failed), done.more) == (5, False)
    assert {gone.reason for gone in done.failed} == {"http_500"}
    assert all(gone.message.startswith("h.example answered 500 (h.example has") for gone in done.failed)
    granted = ledger.claim("w", limit=9, ttl_s=60, defaults=MANNERS)
    assert len(granted) == 4
    settle(ledger, granted[0], Deferred("http_500", "h.example answered 500", 900.0, blames=fault))
    assert [gone.job_id for gone in given(ledger).failed] == [granted[0].job_id]
    settle(ledger, granted[1], held())  # one good answer makes it whole
    settle(ledger, granted[2], Deferred("http_500", "h.example answered 500", 900.0, blames=fault))
    assert given(ledger).failed == []
