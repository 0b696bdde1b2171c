"""Bad input gets a clear error of ours and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from longshore import compat
from longshore.domain.model import JobRequest, Scope, Status
from longshore.domain.outcomes import Deferred
from longshore.domain.settings import HostsSettings
from longshore.errors import BadInput, Conflict, EffectInDoubt, LeaseLost, LongshoreError, NotFound, ResultTooLarge
from longshore.ledger import Intent, Ledger, Move
from longshore.ledger.operations import effects, hosts
from tests.ledger.acts import HOME, downloads, good, lease, plan
from tests.support.ledgers import Clock

ONE = downloads(1)[0]
BAD_TEXTS: dict[str, Any] = {
    "empty": "",
    "nul": "a\0b",
    "surrogate": "a\ud800b",
    "number": 7,
    "huge": "x" * 1_000_001,
    "not nfc": "e\u0301",
}
BAD_CALLS: dict[str, Callable[[Ledger], object]] = {
    "negative ttl": lambda ledger: ledger.claim("w", limit=1, ttl_s=-1),
    "no ttl": lambda ledger: ledger.claim("w", limit=1, ttl_s=0),
    "endless ttl": lambda ledger: ledger.claim("w", limit=1, ttl_s=float("inf")),
    "ttl that is no number": lambda ledger: ledger.claim("w", limit=1, ttl_s=float("nan")),
    "ttl of text": lambda ledger: ledger.claim("w", limit=1, ttl_s="60"),  # type: ignore[arg-type]
    "negative limit": lambda ledger: ledger.claim("w", limit=-1, ttl_s=60),
    "no owner": lambda ledger: ledger.claim("", limit=1, ttl_s=60),
    "ids without scope": lambda ledger: ledger.claim("w", limit=1, ttl_s=60, job_ids=["x"]),
    "unknown policy": lambda ledger: ledger.plan(HOME, [ONE], again="maybe"),  # type: ignore[arg-type]
    "no request": lambda ledger: ledger.plan(HOME, ["https://h.example"]),  # type: ignore[list-item]
    "priority of text": lambda ledger: ledger.plan(HOME, [replace(ONE, priority="high")]),  # type: ignore[arg-type]
    "params that are no JSON": lambda ledger: ledger.plan(HOME, [replace(ONE, key="other", params={"a": {1, 2}})]),
    "params with NaN": lambda ledger: ledger.plan(HOME, [replace(ONE, key="other", params={"a": float("nan")})]),
    "upper-case tenant": lambda ledger: ledger.plan(Scope("Tenant", "p"), [ONE]),
    "tenant that climbs": lambda ledger: ledger.plan(Scope("..", "p"), [ONE]),
    "empty project": lambda ledger: ledger.counts(Scope("a", "")),
    "host of nothing": lambda ledger: ledger.write(hosts.set_host, "", {"paused": True}),
    "negative rate": lambda ledger: ledger.write(hosts.set_host, "h", {"rate_per_s": -1}),
    "unknown host setting": lambda ledger: ledger.write(hosts.set_host, "h", {"colour": "red"}),
    "torrent without a book": lambda ledger: ledger.plan(HOME, [JobRequest("torrent", "k")]),
}


@pytest.mark.parametrize("name", sorted(BAD_CALLS))
def test_a_bad_argument_is_refused(ledger: Ledger, name: str) -> None:
    plan(ledger)
    with pytest.raises(BadInput):
        BAD_CALLS[name](ledger)
    assert ledger.counts(HOME) == {status: int(status is Status.PENDING) for status in Status}


@pytest.mark.parametrize("kind", sorted(BAD_TEXTS))
def test_a_bad_text_is_refused_wherever_it_stands(ledger: Ledger, kind: str) -> None:
    bad = BAD_TEXTS[kind]
    fields = ("job_type", "key", "work_id", "source_ref", "url", "canonical_url", "run_id", "user_id", "source")
    for name in fields:
        with pytest.raises(BadInput, match=r"must be|empty|NUL|characters|normal form"):
            ledger.plan(HOME, [*downloads(1), replace(ONE, **{name: bad})])
    for action in (
        lambda: compat.plan_job_if_absent(
            ledger, HOME, work_id=bad, artifact_id="a", canonical_url="https://h.example"
        ),
        lambda: ledger.job(HOME, bad),
        lambda: compat.get_effect_result(ledger, HOME, bad),
        lambda: ledger.results(HOME, bad),
        lambda: ledger.held(HOME, bad),
    ):
        with pytest.raises(BadInput):
            action()
    assert ledger.counts(HOME)[Status.PENDING] == 0


def test_an_unknown_stage_or_job_is_named(ledger: Ledger) -> None:
    plan(ledger)
    granted = lease(ledger)
    with pytest.raises(BadInput, match="DANCING"):
        compat.advance_state(ledger, granted, "DANCING")
    assert isinstance(ledger.advance([Move(granted, "queued")])[0], BadInput)
    with pytest.raises(NotFound, match="nope"):
        ledger.job(HOME, "nope")
    with pytest.raises(NotFound):
        compat.get_current_state(ledger, HOME, "nope")


@pytest.mark.parametrize("bad", ["job", None, 5], ids=repr)
def test_what_is_no_lease_is_refused(ledger: Ledger, bad: Any) -> None:
    for verb in (
        lambda: ledger.settle([(bad, Deferred("connect", "x", 1.0))]),
        lambda: compat.renew_lease(ledger, bad),
        lambda: compat.release_lease(ledger, bad),
        lambda: compat.advance_state(ledger, bad, "STREAMING"),
        lambda: ledger.advance([Move(bad, "STREAMING")]),
        lambda: compat.run_effect(ledger, bad, "A", "k", dict),
        lambda: ledger.begin([bad]),
        lambda: ledger.confirm(bad, "k", {}),
        lambda: compat.complete(ledger, bad),
        lambda: ledger.write(hosts.hop, bad, "h.example", defaults=HostsSettings()),
    ):
        with pytest.raises(BadInput):
            verb()


def test_an_outcome_of_wrong_types_is_refused_and_the_lease_lives_on(ledger: Ledger) -> None:
    (job_id,) = plan(ledger)
    granted: Any = lease(ledger)
    bad: Any = None
    for verb in (
        lambda: compat.fail(ledger, granted, "no_such_reason", "m"),
        lambda: compat.fail(ledger, granted, bad, "m"),
        lambda: compat.fail(ledger, granted, "http_404", bad),
        lambda: compat.defer(ledger, granted, "connect", "m", "soon"),  # type: ignore[arg-type]
        lambda: compat.complete(ledger, granted, ["no artifact"]),  # type: ignore[list-item]
        lambda: compat.complete(ledger, granted, []),
        lambda: ledger.cancel(HOME, job_id),
        lambda: ledger.job(("home", "main"), job_id),  # type: ignore[arg-type]
        lambda: ledger.plan(bad, []),
    ):
        with pytest.raises(BadInput):
            verb()
    assert ledger.job(HOME, job_id).stage == "LEASED"
    compat.renew_lease(ledger, granted)


@pytest.mark.parametrize("delay_s", [-1.0, float("nan"), float("inf")])
def test_an_impossible_delay_is_refused_in_its_place(ledger: Ledger, delay_s: float) -> None:
    plan(ledger)
    assert isinstance(ledger.settle([(lease(ledger), Deferred("connect", "x", delay_s))])[0], BadInput)


def test_a_result_is_stored_whole_or_refused_before_the_effect(ledger: Ledger) -> None:
    plan(ledger)
    granted = lease(ledger)
    ran: list[str] = []

    def effect(name: str, size: int) -> dict[str, Any]:
        ran.append(name)
        return {"code": "OK", "text": "x" * size}

    large = compat.run_effect(ledger, granted, "A", "large", lambda: effect("large", 1 << 20))
    assert compat.get_effect_result(ledger, HOME, "large") == large
    with pytest.raises(ResultTooLarge):
        compat.run_effect(
            ledger, granted, "A", "announced", lambda: effect("announced", 5_000_000), max_result=5_000_000
        )
    assert ran == ["large"]
    with pytest.raises(ResultTooLarge):
        compat.run_effect(ledger, granted, "A", "surprise", lambda: effect("surprise", 5_000_000))
    assert compat.get_effect_result(ledger, HOME, "surprise") is None
    with pytest.raises(BadInput):
        compat.run_effect(ledger, granted, "A", "list", lambda: [1])  # type: ignore[arg-type,return-value]
    with pytest.raises(ResultTooLarge):
        compat.run_effect(ledger, granted, "A", "once", lambda: effect("once", 5_000_000), effect_class="opaque")
    with pytest.raises(EffectInDoubt):  # it happened: it is not repeated silently
        compat.run_effect(ledger, granted, "A", "once", lambda: effect("once", 5), effect_class="opaque")
    assert ran.count("once") == 1


def test_one_key_means_one_request(ledger: Ledger) -> None:
    plan(ledger, 2)
    one, two = ledger.claim("w", limit=2, ttl_s=60)
    ledger.begin([Intent(one, "POST", "k", "keyed", "request-1")])
    assert isinstance(ledger.begin([Intent(one, "POST", "k", "keyed", "request-2")])[0], Conflict)
    assert isinstance(ledger.begin([Intent(two, "POST", "k", "keyed", "request-1")])[0], Conflict)
    with pytest.raises(BadInput):
        ledger.begin([Intent(one, "POST", "k2", "magic")])  # type: ignore[arg-type]


def test_a_constraint_that_fails_is_told_and_not_taken_for_a_known_job(ledger: Ledger) -> None:
    with pytest.raises(LongshoreError):
        ledger.plan(HOME, [replace(ONE, retry_of="nobody")])
    assert ledger.counts(HOME)[Status.PENDING] == 0
    assert ledger.plan(HOME, [ONE])[0].created


def test_an_effect_that_another_lease_runs_is_not_done(ledger: Ledger, clock: Clock) -> None:
    plan(ledger)
    late = lease(ledger, "late", 10)
    clock.sleep(11)
    runs = lease(ledger, "runs", 60)
    good(ledger.begin([Intent(runs, "SEND", "k", "keyed")])[0])
    assert isinstance(ledger.begin([Intent(late, "SEND", "k", "keyed")])[0], LeaseLost)
    with pytest.raises(LeaseLost):
        compat.run_effect(ledger, late, "SEND", "k", dict)
    assert compat.get_effect_result(ledger, HOME, "k") is None


@pytest.mark.parametrize(
    ("effect_class", "state"), [("keyed", "unfinished"), ("verifiable", "unfinished"), ("opaque", "in_doubt")]
)
def test_an_unfinished_intent_of_a_dead_process_is_recovered_by_its_class(
    ledger: Ledger, clock: Clock, effect_class: Any, state: str
) -> None:
    (job_id,) = plan(ledger)
    dead = lease(ledger, "dead", 10)
    good(ledger.begin([Intent(dead, "SEND", "k", effect_class, "f", {"to": "x"})])[0])
    clock.sleep(11)
    heir = lease(ledger, "heir", 60)
    begun = good(ledger.begin([Intent(heir, "SEND", "k", effect_class, "f", {"to": "x"})])[0])
    assert (begun.state, begun.request) == (state, {"to": "x"})
    with pytest.raises(LongshoreError):
        ledger.confirm(dead, "k", {"code": "OK"})
    if state == "in_doubt":
        with pytest.raises(EffectInDoubt):
            compat.run_effect(ledger, heir, "SEND", "k", lambda: {"sent": 2}, effect_class="opaque", fingerprint="f")
        assert compat.get_effect_result(ledger, HOME, "k") is None
    else:
        ledger.confirm(heir, "k", {"code": "OK", "job": job_id})
        assert good(ledger.begin([Intent(heir, "SEND", "k", effect_class, "f")])[0]).state == "confirmed"


def test_a_transactional_effect_has_no_window(ledger: Ledger) -> None:
    from longshore.ledger.operations.effects import transactional

    plan(ledger)
    granted = lease(ledger)
    intent = Intent(granted, "CHILD", "k", "transactional")

    def act(tx: Any) -> dict[str, Any]:
        from longshore.ledger.operations.planning import plan as plan_verb

        return {"child": plan_verb(tx, HOME, downloads(1, start=7))[0].job_id}

    def fails(tx: Any) -> dict[str, Any]:
        act(tx)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger.write(transactional, intent, fails)
    assert ledger.counts(HOME)[Status.PENDING] == 0
    assert ledger.read(effects.unfinished, HOME, granted.job_id) == []
    first = ledger.write(transactional, intent, act)
    assert ledger.write(transactional, intent, fails) == first
    assert ledger.counts(HOME)[Status.PENDING] == 1
