"""The seeds' own list of what must hold, and the fourteen points of the second one, on both engines."""

from __future__ import annotations

import pytest

from longshore import compat
from longshore.domain.identity.keys import job_key, op_key
from longshore.domain.model import NewArtifact, Scope, Status, Validators
from longshore.domain.outcomes import Failed
from longshore.errors import BadInput, InvalidTransition, LeaseLost
from longshore.ledger import Ledger
from longshore.ledger.operations import effects
from tests.ledger.acts import HOME, blob, downloads, finalize, good, held, lease, plan, settle
from tests.support.ledgers import Clock

TRIPLE = {"work_id": "w-1", "artifact_id": "a-1", "canonical_url": "https://h.example/1"}


def test_keys_are_deterministic() -> None:
    assert job_key(**TRIPLE) == job_key(**TRIPLE)
    assert op_key("HEAD", "j", url="u") == op_key("HEAD", "j", url="u") != op_key("HEAD", "j", url="v")


def test_double_plan_gives_the_same_job(ledger: Ledger) -> None:
    first = compat.plan_job_if_absent(ledger, HOME, **TRIPLE)
    assert compat.plan_job_if_absent(ledger, HOME, **TRIPLE) == first
    assert ledger.counts(HOME)[Status.PENDING] == 1


def test_two_workers_get_one_lease(ledger: Ledger) -> None:
    plan(ledger)
    assert compat.lease_next_job(ledger, "one", scope=None) is not None
    assert compat.lease_next_job(ledger, "two", scope=None) is None


def test_planned_to_streaming_raises(ledger: Ledger, clock: Clock) -> None:
    """Without a lease nothing moves; with an expired one neither; and a RuntimeError it is."""
    plan(ledger)
    granted = lease(ledger)
    compat.release_lease(ledger, granted)
    with pytest.raises(LeaseLost):
        compat.advance_state(ledger, granted, "STREAMING")
    again = lease(ledger)
    compat.advance_state(ledger, again, "HEAD_DONE")
    with pytest.raises(InvalidTransition) as caught:
        compat.advance_state(ledger, again, "LEASED")
    assert isinstance(caught.value, RuntimeError)
    assert compat.get_current_state(ledger, HOME, again.job_id) == "HEAD_DONE"


def test_allowed_from_narrows_the_table(ledger: Ledger) -> None:
    plan(ledger)
    granted = lease(ledger)
    with pytest.raises(RuntimeError, match="LEASED"):
        compat.advance_state(ledger, granted, to_state="STREAMING", allowed_from=("HEAD_DONE", "RESUME_OK"))
    assert compat.get_current_state(ledger, HOME, granted.job_id) == "LEASED"
    compat.advance_state(ledger, granted, to_state="HEAD_DONE", allowed_from=("LEASED",))
    compat.advance_state(ledger, granted, to_state="STREAMING", allowed_from=("HEAD_DONE", "RESUME_OK"))
    with pytest.raises(BadInput):
        compat.advance_state(ledger, granted, to_state="FINALIZED", allowed_from=("DANCING",))
    compat.release_lease(ledger, granted)
    with pytest.raises(RuntimeError):
        compat.advance_state(ledger, granted, to_state="FINALIZED", allowed_from=("STREAMING",))


def test_every_way_to_end_one_lease(ledger: Ledger, clock: Clock) -> None:
    plan(ledger, 4)
    one, two, three, four = ledger.claim("w", limit=4, ttl_s=60)
    done = compat.complete(ledger, one, [NewArtifact(blob(1))], validators=Validators('"v1"'), facts={"n": 1})
    assert (done.stage, ledger.job(HOME, one.job_id).status) == ("INDEXED", Status.COMPLETED)
    assert compat.fail(ledger, two, "http_404", "gone").status is Status.FAILED
    assert compat.defer(ledger, three, "connect", "away", 30.0, counts=False).status is Status.PENDING
    assert compat.skip(ledger, four, one.job_id, done.artifact_ids[0]).stage == "SKIPPED_DUPLICATE"
    for again in (
        lambda: compat.complete(ledger, one, [NewArtifact(blob(2))]),
        lambda: compat.fail(ledger, two, "http_404", "gone"),
        lambda: compat.defer(ledger, three, "connect", "away", 1.0),
        lambda: compat.skip(ledger, four, one.job_id, done.artifact_ids[0]),
        lambda: compat.release_lease(ledger, one),
    ):
        with pytest.raises(LeaseLost):
            again()
    assert ledger.counts(HOME) == {
        **dict.fromkeys(Status, 0),
        Status.COMPLETED: 1,
        Status.FAILED: 1,
        Status.PENDING: 1,
        Status.SKIPPED: 1,
    }
    clock.sleep(31)
    assert lease(ledger).job_id == three.job_id


def test_finalize_twice_gives_the_stored_result(ledger: Ledger) -> None:
    plan(ledger)
    granted = lease(ledger)
    key = op_key("FINALIZE", granted.job_id, sha256="ab")
    ran = []

    def effect() -> dict[str, object]:
        ran.append(1)
        return {"code": "OK", "final_path": "x", "size": 3}

    first = compat.run_effect(ledger, granted, kind="FINALIZE", opkey=key, effect_fn=effect)
    assert compat.run_effect(ledger, granted, "FINALIZE", key, effect) == first
    assert len(ran) == 1
    assert compat.get_effect_result(ledger, HOME, key) == first


def test_renew_only_by_the_owner(ledger: Ledger, clock: Clock) -> None:
    plan(ledger)
    old = lease(ledger, "one", 10)
    assert compat.renew_lease(ledger, old, 10) == clock.now + 10_000_000
    clock.sleep(11)
    with pytest.raises(LeaseLost):
        compat.renew_lease(ledger, old, 10)
    new = lease(ledger, "two", 10)
    assert new.epoch == old.epoch + 1
    with pytest.raises(LeaseLost):
        compat.renew_lease(ledger, old, 10)
    compat.renew_lease(ledger, new, 10)


def test_a_crash_after_finalize_is_recovered_without_a_second_run(ledger: Ledger, clock: Clock) -> None:
    """The intent survives its process; the next attempt finds it, and what is completed is not done again."""
    (job_id,) = plan(ledger)
    dead = lease(ledger, "dead", 10)
    assert good(ledger.begin([finalize(dead)])[0]).state == "new"
    assert compat.get_current_state(ledger, HOME, job_id) == "FINALIZED"
    clock.sleep(11)
    heir = lease(ledger, "heir", 10)
    assert heir.job_id == job_id
    assert [effect.kind for effect in ledger.read(effects.unfinished, HOME, job_id)] == ["FINALIZE"]
    begun = good(ledger.begin([finalize(heir)])[0])
    assert begun.state == "unfinished"
    assert begun.request == {"sha256": f"{1:064x}", "size": 10}
    assert settle(ledger, heir, held(1)).stage == "INDEXED"
    assert compat.get_effect_result(ledger, HOME, finalize(heir).key) is not None
    assert ledger.plan(HOME, downloads(1))[0].status is Status.COMPLETED
    assert compat.lease_next_job(ledger, "next", scope=None) is None


def test_full_progression(ledger: Ledger) -> None:
    plan(ledger)
    granted = lease(ledger)
    for stage in ("HEAD_DONE", "RESUME_OK", "STREAMING", "FINALIZED"):
        compat.advance_state(ledger, granted, stage)
        assert compat.get_current_state(ledger, HOME, granted.job_id) == stage
    assert settle(ledger, granted, held()).stage == "INDEXED"


def test_release_gives_the_job_back_at_once(ledger: Ledger) -> None:
    plan(ledger)
    first = lease(ledger)
    compat.release_lease(ledger, first)
    second = lease(ledger)
    assert (second.job_id, second.epoch) == (first.job_id, first.epoch + 1)


def test_stale_leases_and_ops_are_cleaned(ledger: Ledger, clock: Clock) -> None:
    ids = plan(ledger, 3)
    granted = ledger.claim("w", limit=3, ttl_s=10)
    ledger.begin([finalize(granted[0])])
    settle(ledger, granted[1], Failed("http_404", "gone"))
    clock.sleep(11)
    assert compat.cleanup_stale_leases(ledger) == 2
    assert ledger.counts(HOME)[Status.PENDING] == 2
    assert compat.cleanup_stale_ops(ledger) == 0  # its job is not over: the next attempt recovers it
    ledger.cancel(HOME, [ids[0]])
    assert compat.cleanup_stale_ops(ledger) == 1
    assert ledger.read(effects.unfinished, HOME, ids[0]) == []


def test_the_same_triple_in_two_tenants_is_two_jobs(ledger: Ledger) -> None:
    one = compat.plan_job_if_absent(ledger, Scope("a", "p"), **TRIPLE)
    two = compat.plan_job_if_absent(ledger, Scope("b", "p"), **TRIPLE)
    assert one != two
    assert ledger.counts(Scope("a", "p"))[Status.PENDING] == 1


def test_an_effect_that_raised_is_not_done(ledger: Ledger) -> None:
    plan(ledger)
    granted = lease(ledger)
    with pytest.raises(ZeroDivisionError):
        compat.run_effect(ledger, granted, "HEAD", "k", lambda: {"a": 1 // 0})
    assert compat.get_effect_result(ledger, HOME, "k") is None
    assert compat.run_effect(ledger, granted, "HEAD", "k", lambda: {"a": 1}) == {"a": 1}
