"""Settling, registering, planning again, canceling, retrying."""

from __future__ import annotations

import json

import pytest

from longshore import compat
from longshore.domain.model import JobRequest, NewArtifact, Scope, Status, Validators
from longshore.domain.outcomes import Completed, Deferred, Failed, Outcome, Released, Reused
from longshore.errors import BadInput, Conflict, InvalidTransition, NotFound
from longshore.ledger import Ledger
from longshore.ledger.queries import lookup
from tests.ledger.acts import HOME, blob, downloads, finalize, held, lease, own, plan, settle
from tests.support.ledgers import Clock


def test_completion_registers_everything_in_one_transaction(ledger: Ledger, clock: Clock) -> None:
    (job_id,) = plan(ledger)
    granted = lease(ledger)
    ledger.begin([finalize(granted, 7)])
    settled = settle(ledger, granted, held(7))
    job = ledger.job(HOME, job_id)
    assert (job.status, job.stage, job.attempts, job.progress) == (Status.COMPLETED, "INDEXED", 1, 100)
    assert (job.completed_at, job.lease_owner) == (clock.now, None)
    (artifact,) = ledger.results(HOME, job_id)
    assert (artifact.artifact_id,) == settled.artifact_ids
    assert (artifact.sha256, artifact.created_by_job_id) == (f"{7:064x}", job_id)
    version = ledger.read(lookup.url_version, HOME, "https://h.example/0")
    assert version is not None
    assert (version.sha256, version.validators, version.artifact_id) == (
        artifact.sha256,
        Validators('"v1"'),
        artifact.artifact_id,
    )
    assert compat.get_effect_result(ledger, HOME, finalize(granted, 7).key) == {
        "code": "OK",
        "sha256": artifact.sha256,
        "size": 10,
        "artifact_id": artifact.artifact_id,
    }
    assert ledger.held(HOME, artifact.sha256) == artifact


@pytest.mark.parametrize("stage", ["LEASED", "HEAD_DONE", "RESUME_OK", "STREAMING", "FINALIZED"])
def test_every_stage_of_work_can_end_either_way(ledger: Ledger, stage: str) -> None:
    ways = {
        "HEAD_DONE": ["HEAD_DONE"],
        "RESUME_OK": ["RESUME_OK"],
        "STREAMING": ["STREAMING"],
        "FINALIZED": ["FINALIZED"],
    }
    plan(ledger, 3)
    outcomes: list[Outcome] = [held(1), Failed("http_404", "gone"), Released()]
    for number, outcome in enumerate(outcomes):
        granted = lease(ledger)
        for step in ways.get(stage, []):
            compat.advance_state(ledger, granted, step)
        assert settle(ledger, granted, outcome).status is [Status.COMPLETED, Status.FAILED, Status.PENDING][number]
    assert ledger.reconcile_jobs().wrong_counters == 0


def test_the_second_job_with_the_same_bytes_is_deduped(ledger: Ledger) -> None:
    plan(ledger, 3)
    one, two, three = ledger.claim("w", limit=3, ttl_s=60)
    first, second = ledger.settle([(one, held(5)), (two, held(5))])
    assert [first.stage, second.stage] == ["INDEXED", "DEDUPED"]  # type: ignore[union-attr]
    assert settle(ledger, three, held(5)).stage == "DEDUPED"
    assert len({ledger.results(HOME, granted.job_id)[0].artifact_id for granted in (one, two, three)}) == 3


def test_the_same_bytes_in_another_tenant_are_new(ledger: Ledger) -> None:
    for tenant in ("a", "b"):
        plan(ledger, scope=Scope(tenant, "p"))
        assert settle(ledger, lease(ledger), held(5)).stage == "INDEXED"


def test_a_new_version_of_a_url_names_the_one_before(ledger: Ledger) -> None:
    (first,) = plan(ledger)
    settle(ledger, lease(ledger), held(1))
    (again,) = ledger.plan(HOME, downloads(1), again="always")
    assert again.job_id != first
    settle(ledger, lease(ledger), held(2))
    old, new = ledger.results(HOME, first)[0], ledger.results(HOME, again.job_id)[0]
    assert new.previous_id == old.artifact_id
    assert old.previous_id is None


def test_a_reused_result_is_skipped_with_its_source(ledger: Ledger, clock: Clock) -> None:
    plan(ledger)
    source = lease(ledger)
    (artifact_id,) = settle(ledger, source, held(1)).artifact_ids
    (other,) = ledger.plan(
        HOME, [JobRequest("download", "k", url="https://h.example/0", canonical_url="https://h.example/0")]
    )
    clock.sleep(5)
    settled = settle(ledger, lease(ledger), Reused(source.job_id, artifact_id, revalidated=True))
    assert (settled.status, settled.stage, settled.artifact_ids) == (
        Status.SKIPPED,
        "SKIPPED_DUPLICATE",
        (artifact_id,),
    )
    job = ledger.job(HOME, other.job_id)
    assert job.reuse_of_job_id == source.job_id
    assert [artifact.artifact_id for artifact in ledger.results(HOME, other.job_id)] == [artifact_id]
    version = ledger.read(lookup.url_version, HOME, "https://h.example/0")
    assert version is not None
    assert version.revalidated_at == clock.now > version.seen_at


@pytest.mark.parametrize("now_gives", [1, 2], ids=["still these bytes", "other bytes by now"])
def test_not_modified_renews_what_the_url_gives_whichever_artifact_was_reused(
    ledger: Ledger, clock: Clock, now_gives: int
) -> None:
    """Two URLs gave the same bytes; a 304 of one may be answered with the artifact of the other."""
    plan(ledger, 2)
    one, two = ledger.claim("w", limit=2, ttl_s=60)
    settle(ledger, one, held(now_gives))
    (artifact_id,) = settle(ledger, two, held(1)).artifact_ids
    url = one.job.request.canonical_url
    assert url is not None
    ledger.plan(HOME, [JobRequest("download", "k", url=url, canonical_url=url)])
    clock.sleep(5)
    settle(ledger, lease(ledger), Reused(two.job_id, artifact_id, revalidated=True))
    version = ledger.read(lookup.url_version, HOME, url)
    assert version is not None
    assert version.artifact_id != artifact_id
    assert (version.revalidated_at == clock.now) is (now_gives == 1)


def test_reuse_without_asking_the_server_makes_nothing_younger(ledger: Ledger, clock: Clock) -> None:
    """Otherwise a freshness policy would extend itself for ever (S36)."""
    plan(ledger)
    source = lease(ledger)
    (artifact_id,) = settle(ledger, source, held(1)).artifact_ids
    ledger.plan(HOME, [JobRequest("download", "k", url="https://h.example/0", canonical_url="https://h.example/0")])
    clock.sleep(5)
    settle(ledger, lease(ledger), Reused(source.job_id, artifact_id))
    version = ledger.read(lookup.url_version, HOME, "https://h.example/0")
    assert version is not None
    assert version.revalidated_at == version.seen_at < clock.now


def test_reuse_of_what_is_not_there_changes_nothing(ledger: Ledger) -> None:
    plan(ledger, 2)
    one, two = ledger.claim("w", limit=2, ttl_s=60)
    assert isinstance(ledger.settle([(one, Reused("nope", "nope"))])[0], NotFound)
    compat.advance_state(ledger, two, "STREAMING")
    assert isinstance(ledger.settle([(two, Reused(one.job_id, "x"))])[0], InvalidTransition)
    assert ledger.counts(HOME)[Status.PROCESSING] == 2


def test_a_download_without_a_result_is_not_complete(ledger: Ledger) -> None:
    plan(ledger)
    assert isinstance(ledger.settle([(lease(ledger), Completed(()))])[0], BadInput)


def test_own_jobs_have_inputs_and_several_results_in_order(ledger: Ledger) -> None:
    plan(ledger)
    (input_id,) = settle(ledger, lease(ledger), held(1)).artifact_ids
    (job_id,) = own(ledger, 1, inputs=(input_id,))
    granted = lease(ledger)
    assert granted.job.request.inputs == (input_id,)
    outcome = Completed(tuple(NewArtifact(blob(number), artifact_type="report") for number in (3, 2)))
    settled = settle(ledger, granted, outcome)
    assert (settled.status, settled.stage) == (Status.COMPLETED, "completed")
    assert [artifact.sha256 for artifact in ledger.results(HOME, job_id)] == [f"{3:064x}", f"{2:064x}"]
    assert [artifact.artifact_id for artifact in ledger.results(HOME, job_id, role="input")] == [input_id]
    with pytest.raises(NotFound):
        own(ledger, 1, job_type="other", inputs=("nope",))


def test_an_unknown_reason_is_refused_in_its_place(ledger: Ledger) -> None:
    plan(ledger, 2)
    one, two = ledger.claim("w", limit=2, ttl_s=60)
    answers = ledger.settle([(one, Failed("because", "x")), (two, Failed("http_404", "x"))])
    assert isinstance(answers[0], BadInput)
    assert ledger.job(HOME, two.job_id).status is Status.FAILED


def test_secrets_do_not_reach_messages_or_history(ledger: Ledger) -> None:
    (job_id,) = plan(ledger)
    secret = "https://user:pa55@h.example/x?X-Amz-Signature=deadbeefdeadbeef"
    granted = lease(ledger)
    settle(ledger, granted, Failed("http_404", f"no {secret} here", facts={"final_url": secret, "hops": [secret]}))
    shown = json.dumps([event.facts for event in ledger.timeline(HOME, job_id).events]) + str(
        ledger.job(HOME, job_id).message
    )
    assert "pa55" not in shown
    assert "deadbeef" not in shown
    assert "h.example" in shown


def test_the_reason_is_the_last_attempts_own(ledger: Ledger, clock: Clock) -> None:
    (job_id,) = plan(ledger)
    settle(ledger, lease(ledger), Deferred("connect", "first", 1.0))
    clock.sleep(2)
    settle(ledger, lease(ledger), Failed("http_404", "second"))
    job = ledger.job(HOME, job_id)
    assert (job.reason, job.message, job.attempts, job.failed_at) == ("http_404", "second", 2, clock.now)


def test_planning_again_follows_the_policy(ledger: Ledger) -> None:
    done, failed = plan(ledger, 2)
    leases = {granted.job_id: granted for granted in ledger.claim("w", limit=2, ttl_s=60)}
    assert [planned.status for planned in ledger.plan(HOME, downloads(2), again="always")] == [Status.PROCESSING] * 2
    settle(ledger, leases[done], held(1))
    settle(ledger, leases[failed], Failed("http_404", "gone"))
    never = ledger.plan(HOME, downloads(2))
    assert [(planned.job_id, planned.created) for planned in never] == [(done, False), (failed, False)]
    again = ledger.plan(HOME, downloads(2), again="failed")
    assert (again[0].job_id, again[0].created) == (done, False)
    assert again[1].created
    assert ledger.job(HOME, again[1].job_id).retry_of == failed
    assert ledger.plan(HOME, downloads(2))[1].job_id == again[1].job_id  # the new one has the key now
    fresh = ledger.plan(HOME, downloads(2), again="always")
    assert [planned.created for planned in fresh] == [True, False]


def test_twins_in_one_batch_are_one_job(ledger: Ledger) -> None:
    first, second = ledger.plan(HOME, downloads(1) + downloads(1))
    assert first.job_id == second.job_id
    assert (first.created, second.created) == (True, False)
    free = ledger.plan(HOME, [JobRequest("task", None), JobRequest("task", None)])
    assert free[0].job_id != free[1].job_id


def test_retry_makes_a_linked_job_and_wakes_waiting_ones(ledger: Ledger) -> None:
    failed, waiting, done = plan(ledger, 3)
    leases = {granted.job_id: granted for granted in ledger.claim("w", limit=3, ttl_s=60)}
    settle(ledger, leases[failed], Failed("http_404", "gone"))
    settle(ledger, leases[waiting], Deferred("connect", "later", 3_600.0))
    settle(ledger, leases[done], held(1))
    (planned,) = ledger.retry(HOME, [failed, waiting, done])
    assert ledger.job(HOME, planned.job_id).retry_of == failed
    assert {lease(ledger).job_id for _ in range(2)} == {planned.job_id, waiting}
    with pytest.raises(NotFound):
        ledger.retry(HOME, ["nope"])


def test_cancel_says_what_it_came_to(ledger: Ledger) -> None:
    one, two, three = plan(ledger, 3)
    granted = lease(ledger)
    settle(ledger, granted, held(1))
    running = lease(ledger)
    result = ledger.cancel(HOME, [one, two, three, "nope"])
    assert (result.unchanged, result.requested, result.canceled, result.missing) == (
        (one,),
        (two,),
        (three,),
        ("nope",),
    )
    assert running.job_id == two
    assert ledger.counts(HOME)[Status.CANCELED] == 1
    assert compat.lease_next_job(ledger, "w", scope=None) is None


@pytest.mark.parametrize("outcome", [Released(), Deferred("connect", "later", 3_600.0)], ids=["released", "deferred"])
def test_a_job_that_was_asked_to_stop_is_not_tried_again(ledger: Ledger, outcome: Outcome) -> None:
    (job_id,) = plan(ledger)
    running = lease(ledger)
    assert ledger.cancel(HOME, [job_id]).requested == (job_id,)
    assert settle(ledger, running, outcome).status is Status.CANCELED
    assert ledger.job(HOME, job_id).status is Status.CANCELED
    assert compat.lease_next_job(ledger, "w", scope=None) is None
    assert ledger.reconcile_jobs().wrong_counters == 0


def test_one_active_torrent_per_user_book_and_medium(ledger: Ledger) -> None:
    def request(key: str, user: str = "u") -> JobRequest:
        return JobRequest("torrent", key, user_id=user, book_id="b", media_type="ebook", source="magnet:?x")

    (first,) = ledger.plan(HOME, [request("one")])
    assert ledger.plan(HOME, [request("one")])[0].job_id == first.job_id
    with pytest.raises(Conflict) as caught:
        ledger.plan(HOME, [request("two")])
    assert caught.value.job_id == first.job_id
    ledger.plan(HOME, [request("three", user="v")])
    ledger.cancel(HOME, [first.job_id])
    assert ledger.plan(HOME, [request("two")])[0].created


def test_a_lost_artifact_is_marked_and_never_changed(ledger: Ledger) -> None:
    plan(ledger)
    settled = settle(ledger, lease(ledger), held(1))
    assert ledger.mark_missing(HOME, settled.artifact_ids) == 1
    assert ledger.mark_missing(HOME, settled.artifact_ids) == 0
    assert ledger.results(HOME, settled.job_id)[0].availability == "missing"
    assert ledger.held(HOME, f"{1:064x}") is None
    assert ledger.job(HOME, settled.job_id).status is Status.COMPLETED


def test_a_timeline_shows_every_change_of_status(ledger: Ledger, clock: Clock) -> None:
    (job_id,) = plan(ledger)
    settle(ledger, lease(ledger, "one"), Deferred("connect", "x", 1.0))
    clock.sleep(2)
    lease(ledger, "two", 10)
    clock.sleep(11)
    settle(ledger, lease(ledger, "three"), held(1))
    timeline = ledger.timeline(HOME, job_id)
    kinds = [event.kind for event in timeline.events]
    assert [kind for kind in kinds if kind in ("deferred", "lease_expired", "completed")] == [
        "deferred",
        "lease_expired",
        "completed",
    ]
    assert [(claim.owner, claim.outcome) for claim in timeline.claims] == [
        ("one", "deferred"),
        ("two", "expired"),
        ("three", "completed"),
    ]
