"""The classic verbs by their old names, one job at a time, as functions over an open `Ledger`.

With a connection or a path in the place of the ledger, they take the arguments of the earlier modules, such as
`advance_state(conn, job_id=…, to_state=…)`: `longshore.classic` has these variants.

`plan_job_if_absent`, `lease_next_job`, `advance_state`, `run_effect` … are how earlier programs drove a ledger by
hand; docs/explanation/usage-pattern.md shows the whole pattern. The worker itself works in batches (`Ledger.plan`,
`claim`, `settle`) and does not import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar, cast

from longshore.domain.identity.keys import job_key, op_key
from longshore.domain.model import Lease, Micros, NewArtifact, Scope, Validators
from longshore.domain.outcomes import Completed, Deferred, Failed, Outcome, Released, Reused
from longshore.errors import EffectInDoubt, LeaseLost, LongshoreError
from longshore.ledger import Ledger
from longshore.ledger.operations import effects, make_claimable, planning, stages
from longshore.ledger.operations.repair import Healed
from longshore.ledger.records import EffectClass, Intent, Settled

__all__ = [
    "advance_state",
    "apply_migration",
    "cleanup_stale_leases",
    "cleanup_stale_ops",
    "complete",
    "defer",
    "fail",
    "get_current_state",
    "get_effect_result",
    "job_key",
    "lease_next_job",
    "op_key",
    "plan_job_if_absent",
    "publish_part",
    "reconcile_jobs",
    "release_lease",
    "renew_lease",
    "run_effect",
    "skip",
]
F = TypeVar("F", bound=Callable[..., Any])


def _or_classic(function: F) -> F:
    """Also accept a connection or a path in the place of the ledger."""

    @wraps(function)
    def call(place: Any, *args: Any, **kw: Any) -> Any:
        if isinstance(place, Ledger):
            return function(place, *args, **kw)
        return getattr(import_module("longshore.classic"), function.__name__)(place, *args, **kw)

    return cast("F", call)


def apply_migration(place: Any) -> None:
    """Make the ledger in a new or empty file, or bring it up to date; a connection to the file or its path."""
    import_module("longshore.classic").apply_migration(place)


def publish_part(place: Any, *, job_id: str, part: Any) -> dict[str, Any]:
    """Copy a finished `.part` into the store beside the ledger; for the FINALIZE of the classic pattern."""
    made: dict[str, Any] = import_module("longshore.classic").publish_part(place, job_id=job_id, part=part)
    return made


@_or_classic
def reconcile_jobs(ledger: Ledger) -> Healed:
    """Repair the ledger's own rows: leases, intents, lanes and counters."""
    return ledger.reconcile_jobs()


@_or_classic
def plan_job_if_absent(
    ledger: Ledger, scope: Scope, *, work_id: str, artifact_id: str, canonical_url: str, run_id: str | None = None
) -> str:
    """Plan one download by its v1 key (work, artifact, URL) and return the job's id."""
    return ledger.write(
        planning.plan_job_if_absent,
        scope,
        work_id=work_id,
        artifact_id=artifact_id,
        canonical_url=canonical_url,
        run_id=run_id,
    )


@_or_classic
def lease_next_job(
    ledger: Ledger,
    owner: str,
    ttl_s: float = 120,
    *,
    scope: Scope | None = Scope(),
    tenant: str | None = None,
    job_types: Sequence[str] | None = None,
) -> Lease | None:
    """Claim one job of a tenant and project, and of these types if some are given; return None if none is claimable.

    `tenant` claims in all projects of a tenant, in the place of `scope`; `scope=None` claims for every tenant. A worker that knows one type names it: it would get the others, too.
    """
    where = {"scope": scope} if tenant is None else {"tenant": tenant}
    leases = ledger.claim(owner, limit=1, ttl_s=ttl_s, job_types=job_types, **where)
    return leases[0] if leases else None


@_or_classic
def renew_lease(ledger: Ledger, lease: Lease, ttl_s: float = 120) -> Micros:
    """Renew one lease and return its new expiry; raise LeaseLost if it is lost."""
    renewed = ledger.renew([lease], ttl_s)
    if renewed.lost:
        raise LeaseLost(f"the lease of job {lease.job_id} is lost")
    return renewed.until


@_or_classic
def release_lease(ledger: Ledger, lease: Lease) -> None:
    """Release one lease at once; the job becomes claimable again."""
    _settle(ledger, lease, Released())


@_or_classic
def advance_state(ledger: Ledger, lease: Lease, to_state: str, allowed_from: Sequence[str] | None = None) -> None:
    """Move one leased job to a stage; raise if its current stage is not in `allowed_from` (if given)."""
    ledger.write(stages.advance_state, lease, to_state, allowed_from)


@_or_classic
def get_current_state(ledger: Ledger, scope: Scope, job_id: str) -> str:
    """Return the current stage of a job."""
    return ledger.read(stages.get_current_state, scope, job_id)


def complete(
    ledger: Ledger,
    lease: Lease,
    artifacts: Sequence[NewArtifact] = (),
    *,
    validators: Validators | None = None,
    final_url: str | None = None,
    facts: dict[str, Any] | None = None,
) -> Settled:
    """Complete one job: register its results and end its lease, in one transaction."""
    return _settle(ledger, lease, Completed(tuple(artifacts), validators, final_url, facts or {}))


def fail(ledger: Ledger, lease: Lease, reason: str, message: str, *, debug_id: str | None = None) -> Settled:
    """Fail one job permanently with a reason from `domain.reasons`, and end its lease."""
    return _settle(ledger, lease, Failed(reason, message, debug_id))


def defer(ledger: Ledger, lease: Lease, reason: str, message: str, delay_s: float, *, counts: bool = True) -> Settled:
    """End one lease and retry the job after `delay_s`. `counts`: count this as a failed attempt."""
    return _settle(ledger, lease, Deferred(reason, message, delay_s, counts))


def skip(ledger: Ledger, lease: Lease, of_job_id: str, artifact_id: str) -> Settled:
    """End one lease by reusing the result of another job."""
    return _settle(ledger, lease, Reused(of_job_id, artifact_id))


@_or_classic
def run_effect(
    ledger: Ledger,
    lease: Lease,
    kind: str,
    opkey: str,
    effect_fn: Callable[[], dict[str, Any]],
    *,
    effect_class: EffectClass = "verifiable",
    fingerprint: str | None = None,
    max_result: int | None = None,
) -> dict[str, Any]:
    """Run an effect unless the ledger has its result. `max_result`, if known, is checked before it runs."""
    effects.check_size(max_result, effects.RESULT_LIMIT)
    begun = ledger.begin([Intent(lease, kind, opkey, effect_class, fingerprint)])[0]
    if isinstance(begun, LongshoreError):
        raise begun
    if begun.state == "confirmed":
        return begun.result or {}
    if begun.state == "in_doubt":
        raise EffectInDoubt(f"the {kind} of job {lease.job_id} may or may not have happened")
    try:
        result = effect_fn()
    except BaseException as error:
        ledger.write(effects.effect_failed, lease, opkey, type(error).__name__)
        raise
    try:
        effects.checked_result(result, effects.RESULT_LIMIT)
    except LongshoreError as error:  # it happened, but its result cannot be stored
        if effect_class == "opaque":
            ledger.write(effects.effect_in_doubt, lease, opkey)
        else:
            ledger.write(effects.effect_failed, lease, opkey, type(error).__name__)
        raise
    ledger.confirm(lease, opkey, result)
    return result


@_or_classic
def get_effect_result(ledger: Ledger, scope: Scope, opkey: str) -> dict[str, Any] | None:
    """Return the stored result of an effect; None when it is not done."""
    return ledger.read(effects.get_effect_result, scope, opkey)


@_or_classic
def cleanup_stale_leases(ledger: Ledger) -> int:
    """Release every expired lease."""
    return ledger.write(make_claimable.cleanup_stale_leases)


@_or_classic
def cleanup_stale_ops(ledger: Ledger) -> int:
    """Close the intents of effects that no worker can finish any more."""
    return ledger.write(effects.cleanup_stale_ops)


def _settle(ledger: Ledger, lease: Lease, outcome: Outcome) -> Settled:
    settled = ledger.settle([(lease, outcome)])[0]
    if isinstance(settled, LongshoreError):
        raise settled
    return settled
