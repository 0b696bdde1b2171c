"""Leases: one holder, fenced, fair, polite."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from longshore import compat
from longshore.domain.identity.requests import download_request
from longshore.domain.model import SECOND, JobRequest, Lease, Scope, Status
from longshore.domain.outcomes import Canceled, Deferred, Failed, Released
from longshore.domain.settings import HostSettings, HostsSettings
from longshore.errors import InvalidTransition, LeaseLost
from longshore.ledger import Ledger, Move
from longshore.ledger.operations import hosts
from tests.ledger.acts import HOME, finalize, good, held, lease, own, plan, settle
from tests.support.ledgers import Clock

MANY = HostsSettings(concurrency=1_000)


def hosts_of(leases: list[Lease]) -> Counter[str]:
    return Counter(granted.job.request.host for granted in leases)


def test_an_expired_lease_is_claimable_again_with_a_new_epoch(ledger: Ledger, clock: Clock) -> None:
    plan(ledger)
    old = lease(ledger, "one", 10)
    compat.advance_state(ledger, old, "STREAMING")
    clock.sleep(10)  # the very moment of the end counts as over
    new = lease(ledger, "two", 10)
    assert (new.job_id, new.epoch, new.job.stage) == (old.job_id, 2, "LEASED")


def test_every_write_of_a_lost_lease_is_refused_and_changes_nothing(ledger: Ledger, clock: Clock) -> None:
    (job_id,) = plan(ledger)
    zombie = lease(ledger, "zombie", 10)
    clock.sleep(11)
    heir = lease(ledger, "heir", 60)
    before = ledger.job(HOME, job_id)
    answers = [
        ledger.advance([Move(zombie, "STREAMING")])[0],
        ledger.begin([finalize(zombie)])[0],
        *(
            ledger.settle([(zombie, outcome)])[0]
            for outcome in (held(), Failed("http_404", "x"), Released(), Canceled())
        ),
        ledger.settle([(zombie, Deferred("connect", "x", 1.0))])[0],
    ]
    assert [type(answer) for answer in answers] == [LeaseLost] * len(answers)
    assert ledger.renew([zombie], 60).lost == {(job_id, 1)}
    for raising in (
        lambda: ledger.write(hosts.hop, zombie, "other.example", defaults=HostsSettings()),
        lambda: ledger.confirm(zombie, "k", {}),
        lambda: compat.run_effect(ledger, zombie, "X", "k", dict),
        lambda: compat.release_lease(ledger, zombie),
    ):
        with pytest.raises(LeaseLost):
            raising()
    assert ledger.job(HOME, job_id) == before
    assert settle(ledger, heir, held()).status is Status.COMPLETED


def test_an_expired_lease_writes_nothing_even_if_nobody_took_it(ledger: Ledger, clock: Clock) -> None:
    plan(ledger)
    late = lease(ledger, "late", 10)
    clock.sleep(11)
    assert isinstance(ledger.settle([(late, held())])[0], LeaseLost)
    assert isinstance(ledger.advance([Move(late, "STREAMING")])[0], LeaseLost)


def test_one_lost_lease_does_not_spoil_the_batch(ledger: Ledger, clock: Clock) -> None:
    plan(ledger, 4)
    first = ledger.claim("w", limit=2, ttl_s=10, defaults=MANY)
    clock.sleep(11)
    second = ledger.claim("w", limit=4, ttl_s=60, defaults=MANY)
    ended = [(granted, held(number)) for number, granted in enumerate([*first, *second, second[0]])]
    answers = ledger.settle(ended)
    assert [isinstance(answer, LeaseLost) for answer in answers] == [True, True, False, False, False, False, True]
    assert ledger.counts(HOME)[Status.COMPLETED] == 4


def test_terminal_is_final(ledger: Ledger) -> None:
    plan(ledger)
    granted = lease(ledger)
    settle(ledger, granted, Failed("http_404", "gone"))
    assert isinstance(ledger.settle([(granted, held())])[0], LeaseLost)
    assert ledger.cancel(HOME, [granted.job_id]).unchanged == (granted.job_id,)
    assert compat.lease_next_job(ledger, "w", scope=None) is None


def test_higher_priority_first_then_the_order_of_planning(ledger: Ledger) -> None:
    low = plan(ledger, 2, start=0)
    high = plan(ledger, 2, start=10, priority=5)
    other = plan(ledger, 1, start=20, host="other.example", priority=9)
    taken = [lease(ledger).job_id for _ in range(5)]
    assert taken == [*other, *high, *low]


def test_hosts_take_turns(ledger: Ledger) -> None:
    for host in ("a.example", "b.example", "c.example"):
        plan(ledger, 20, host=host)
    assert hosts_of(ledger.claim("w", limit=9, ttl_s=60, defaults=MANY)) == {
        "a.example": 3,
        "b.example": 3,
        "c.example": 3,
    }
    singly = [lease(ledger) for _ in range(6)]
    assert set(hosts_of(singly).values()) == {2}


def test_tenants_take_turns_whatever_they_have_queued(ledger: Ledger) -> None:
    for number in range(30):
        plan(ledger, 3, scope=Scope("big", "p"), host=f"host{number}.example")
    plan(ledger, 5, scope=Scope("small", "p"), host="host0.example")
    taken = ledger.claim("w", limit=10, ttl_s=60, defaults=MANY)
    assert Counter(granted.scope.tenant_id for granted in taken) == {"big": 5, "small": 5}
    again = ledger.claim("w", limit=10, ttl_s=60, defaults=MANY)
    assert len(again) == 10  # what one does not need the other gets


def test_single_claims_serve_tenants_in_turn(ledger: Ledger) -> None:
    for tenant in ("a", "b", "c"):
        plan(ledger, 4, scope=Scope(tenant, "p"))
    assert [lease(ledger).scope.tenant_id for _ in range(6)] == ["a", "b", "c", "a", "b", "c"]


def test_a_scope_a_type_or_names_narrow_a_claim(ledger: Ledger) -> None:
    plan(ledger, 2, scope=Scope("a", "p"))
    plan(ledger, 2, scope=Scope("a", "q"))
    tasks = own(ledger, 2)
    assert len(ledger.claim("w", limit=9, ttl_s=60, scope=Scope("a", "q"))) == 2
    named = ledger.claim("w", limit=9, ttl_s=60, scope=HOME, job_ids=[tasks[1], "no-such-job"])
    assert [granted.job_id for granted in named] == [tasks[1]]
    assert [granted.job_id for granted in ledger.claim("w", limit=9, ttl_s=60, job_types=["task"])] == [tasks[0]]
    assert ledger.claim("w", limit=9, ttl_s=60, job_types=["other"]) == []


def test_a_host_never_has_more_in_flight_than_its_concurrency(ledger: Ledger) -> None:
    polite = HostsSettings(concurrency=3, named={"slow.example": HostSettings(concurrency=1)})
    plan(ledger, 10)
    plan(ledger, 10, host="slow.example")
    taken = ledger.claim("one", limit=50, ttl_s=60, defaults=polite)
    assert hosts_of(taken) == {"h.example": 3, "slow.example": 1}
    assert ledger.claim("two", limit=50, ttl_s=60, defaults=polite) == []
    settle(ledger, taken[0], held(1))
    assert len(ledger.claim("two", limit=50, ttl_s=60, defaults=polite)) == 1


def test_what_a_dead_worker_held_is_in_flight_no_longer(ledger: Ledger, clock: Clock) -> None:
    polite = HostsSettings(concurrency=2)
    plan(ledger, 4)
    assert len(ledger.claim("dead", limit=9, ttl_s=10, defaults=polite)) == 2
    assert ledger.claim("alive", limit=9, ttl_s=10, defaults=polite) == []
    clock.sleep(11)
    assert len(ledger.claim("alive", limit=9, ttl_s=10, defaults=polite)) == 2


def test_known_dead_owners_lose_their_leases_at_once(ledger: Ledger) -> None:
    plan(ledger, 4)
    ledger.claim("dead", limit=3, ttl_s=600)
    alive = ledger.claim("alive", limit=1, ttl_s=600)
    assert ledger.release_dead(["dead", "never-was"]) == 3
    assert len(ledger.claim("heir", limit=9, ttl_s=600)) == 3
    assert not ledger.renew(alive, 600).lost


def test_a_finalized_lease_leaves_its_host_free(ledger: Ledger) -> None:
    polite = HostsSettings(concurrency=1)
    plan(ledger, 2)
    (first,) = ledger.claim("w", limit=9, ttl_s=60, defaults=polite)
    ledger.begin([finalize(first)])
    assert len(ledger.claim("w", limit=9, ttl_s=60, defaults=polite)) == 1


def test_ahead_gives_more_leases_but_not_more_slots(ledger: Ledger) -> None:
    polite = HostsSettings(concurrency=2)
    plan(ledger, 20)
    ahead = ledger.claim("one", limit=9, ttl_s=60, defaults=polite, ahead=5)
    assert [granted.host_slots for granted in ahead] == [2] * 7
    assert ledger.claim("two", limit=9, ttl_s=60, defaults=polite, ahead=5) == []
    rated = HostsSettings(concurrency=2, rate_per_s=1)
    assert ledger.claim("one", limit=9, ttl_s=60, defaults=rated, ahead=50) == []


def test_a_rate_spaces_the_starts(ledger: Ledger, clock: Clock) -> None:
    polite = HostsSettings(concurrency=100, rate_per_s=2)
    plan(ledger, 10)
    starts = []
    for _ in range(40):
        starts += [clock.now] * len(ledger.claim("w", limit=9, ttl_s=600, defaults=polite))
        clock.sleep(0.1)
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert len(starts) == 8
    assert min(gaps) >= SECOND // 2


def test_a_resting_host_blocks_nobody_else(ledger: Ledger, clock: Clock) -> None:
    plan(ledger, 3)
    plan(ledger, 1, host="other.example")
    (first,) = ledger.claim("w", limit=1, ttl_s=60)
    assert first.job.request.host == "h.example"
    settle(ledger, first, Deferred("http_503", "busy", 0.0, host_rest_s=30))
    assert hosts_of(ledger.claim("w", limit=9, ttl_s=600)) == {"other.example": 1}
    due = ledger.next_due()
    assert due == clock.now + 30 * SECOND
    clock.sleep(30)
    assert hosts_of(ledger.claim("w", limit=9, ttl_s=600)) == {"h.example": 3}


def test_a_breaker_opens_after_faults_in_a_row_and_closes_after_a_success(ledger: Ledger, clock: Clock) -> None:
    polite = HostsSettings(concurrency=4, breaker_failures=3, breaker_cooldown_s=30)
    plan(ledger, 10)
    for granted in ledger.claim("w", limit=3, ttl_s=60, defaults=polite):
        settle(ledger, granted, Deferred("connect", "no answer", 0.0))
    assert ledger.claim("w", limit=9, ttl_s=60, defaults=polite) == []
    clock.sleep(30)
    (probe,) = ledger.claim("w", limit=9, ttl_s=60, defaults=polite)
    settle(ledger, probe, held())
    assert len(ledger.claim("w", limit=9, ttl_s=60, defaults=polite)) == 4


def test_a_paused_host_waits_until_it_is_let_go(ledger: Ledger) -> None:
    plan(ledger, 2)
    ledger.write(hosts.set_host, "h.example", {"paused": True})
    assert ledger.claim("w", limit=9, ttl_s=60) == []
    ledger.write(hosts.set_host, "h.example", {"paused": False, "concurrency": 1})
    assert len(ledger.claim("w", limit=9, ttl_s=60)) == 1
    (shown,) = ledger.read(hosts.hosts)
    assert (shown.host, shown.concurrency, shown.in_flight) == ("h.example", 1, 1)


def test_a_hop_takes_a_slot_of_the_other_host(ledger: Ledger) -> None:
    polite = HostsSettings(concurrency=1)
    plan(ledger, 2)
    plan(ledger, 1, host="cdn.example")
    first, second = ledger.claim("w", limit=2, ttl_s=60, defaults=polite)
    assert not ledger.write(hosts.hop, first, second.job.request.host, defaults=polite)  # full
    settle(ledger, second, held(2))
    assert ledger.write(hosts.hop, first, "cdn.example", defaults=polite)
    assert hosts_of(ledger.claim("w", limit=9, ttl_s=60, defaults=polite)) == {"h.example": 1}


def test_a_learned_host_becomes_the_claim_key(ledger: Ledger, clock: Clock) -> None:
    (job_id,) = plan(ledger, host="doi.example")
    granted = lease(ledger)
    settle(ledger, granted, Deferred("host_busy", "full", 5.0, counts=False, host="publisher.example"))
    ledger.write(hosts.set_host, "publisher.example", {"paused": True})
    clock.sleep(6)
    assert compat.lease_next_job(ledger, "w", scope=None) is None
    ledger.write(hosts.set_host, "publisher.example", {"paused": False})
    again = lease(ledger)
    assert (again.job_id, again.job.request.host, again.job.attempts) == (job_id, "publisher.example", 0)


def test_waiting_jobs_come_when_they_are_due_and_not_before(ledger: Ledger, clock: Clock) -> None:
    (job_id,) = plan(ledger)
    settle(ledger, lease(ledger), Deferred("connect", "no answer", 20.0))
    waiting = ledger.job(HOME, job_id)
    assert (waiting.status, waiting.stage, waiting.attempts, waiting.reason) == (
        Status.PENDING,
        "PLANNED",
        1,
        "connect",
    )
    assert waiting.next_attempt_at == clock.now + 20 * SECOND == ledger.next_due()
    clock.sleep(19)
    assert compat.lease_next_job(ledger, "w", scope=None) is None
    clock.sleep(1)
    assert lease(ledger).job_id == job_id


def test_a_job_that_kills_its_workers_is_over_after_max_claims(ledger: Ledger, clock: Clock) -> None:
    poison, *_ = plan(ledger, 1)
    for _ in range(3):
        granted = ledger.claim("w", limit=1, ttl_s=10, max_claims=3)[0]
        compat.advance_state(ledger, granted, "STREAMING")
        clock.sleep(11)
    assert ledger.claim("w", limit=1, ttl_s=10, max_claims=3) == []
    job = ledger.job(HOME, poison)
    assert (job.status, job.reason, job.claims) == (Status.FAILED, "max_claims", 3)
    assert ledger.counts(HOME)[Status.FAILED] == 1


def test_claims_that_never_got_past_leased_do_not_count(ledger: Ledger, clock: Clock) -> None:
    plan(ledger)
    for _ in range(5):
        assert ledger.claim("w", limit=1, ttl_s=10, max_claims=2)
        clock.sleep(11)


def test_advance_moves_along_the_table_and_nowhere_else(ledger: Ledger) -> None:
    plan(ledger, 2)
    one, two = ledger.claim("w", limit=2, ttl_s=60)
    assert ledger.advance([Move(one, "HEAD_DONE"), Move(two, "INDEXED"), Move(one, "STREAMING")])[0::2] == [None, None]
    assert isinstance(ledger.advance([Move(one, "HEAD_DONE")])[0], InvalidTransition)
    assert isinstance(ledger.advance([Move(two, "FAILED")])[0], InvalidTransition)  # endings are settled
    assert compat.get_current_state(ledger, HOME, two.job_id) == "LEASED"


def test_renewing_tells_who_should_stop(ledger: Ledger) -> None:
    plan(ledger, 2)
    one, two = ledger.claim("w", limit=2, ttl_s=60)
    assert ledger.cancel(HOME, [one.job_id]).requested == (one.job_id,)
    renewed = ledger.renew([one, two], 60)
    assert renewed.canceled == {one.job_id}
    assert not renewed.lost
    assert settle(ledger, one, Canceled()).status is Status.CANCELED


def test_a_cancel_that_nobody_lives_to_see_happens_when_the_lease_ends(ledger: Ledger, clock: Clock) -> None:
    (job_id,) = plan(ledger)
    lease(ledger, "dead", 10)
    ledger.cancel(HOME, [job_id])
    clock.sleep(11)
    assert compat.lease_next_job(ledger, "w", scope=None) is None
    assert ledger.job(HOME, job_id).status is Status.CANCELED


def test_report_keeps_progress_of_live_leases_only(ledger: Ledger, clock: Clock) -> None:
    from longshore.ledger.operations.stages import report

    (job_id,) = plan(ledger)
    granted = lease(ledger, "w", 10)
    ledger.write(report, [(granted, 50, 200)])
    assert ledger.job(HOME, job_id).progress == 25
    clock.sleep(11)
    ledger.write(report, [(granted, 199, 200)])
    assert ledger.job(HOME, job_id).progress == 25


def test_torrents_are_claimed_only_by_name_and_go_on_without_a_lease(ledger: Ledger, clock: Clock) -> None:
    from longshore.domain.model import JobRequest

    request = JobRequest("torrent", "t1", user_id="u", book_id="b", media_type="ebook", source="magnet:?x")
    (planned,) = ledger.plan(HOME, [request])
    assert ledger.claim("w", limit=9, ttl_s=60) == []
    assert ledger.claim("w", limit=9, ttl_s=60, job_types=["torrent"]) == []
    (granted,) = ledger.claim("w", limit=1, ttl_s=10, scope=HOME, job_ids=[planned.job_id], job_types=["torrent"])
    clock.sleep(11)
    compat.cleanup_stale_leases(ledger)
    job = ledger.job(HOME, planned.job_id)
    assert (job.status, job.stage, job.lease_owner) == (Status.PROCESSING, "downloading", None)
    assert ledger.counts(HOME)[Status.PROCESSING] == 1
    assert good(ledger.reconcile_jobs()).wrong_counters == 0
    assert granted.epoch == 1


def test_the_classic_claim_hands_out_nothing_of_another_tenant(ledger: Ledger) -> None:
    ledger.plan(Scope("other", "p"), [download_request("https://h.example/other")])
    ledger.plan(Scope("default", "p2"), [download_request("https://h.example/project")])
    ledger.plan(Scope(), [JobRequest("task", "t"), download_request("https://h.example/mine")])
    mine = compat.lease_next_job(ledger, "w", job_types=["download"])
    assert mine is not None
    assert (mine.scope, mine.job.job_type) == (Scope(), "download")
    assert compat.lease_next_job(ledger, "w", job_types=["download"]) is None
    task = compat.lease_next_job(ledger, "w")
    assert task is not None
    assert task.job.job_type == "task"
    assert compat.lease_next_job(ledger, "w") is None
    second = compat.lease_next_job(ledger, "w", tenant="default")
    assert second is not None
    assert second.scope == Scope("default", "p2")
    assert compat.lease_next_job(ledger, "w", tenant="default") is None
    other = compat.lease_next_job(ledger, "w", scope=Scope("other", "p"))
    assert other is not None
    ledger.plan(Scope("third", "p"), [download_request("https://h.example/third")])
    assert compat.lease_next_job(ledger, "w", scope=None) is not None
