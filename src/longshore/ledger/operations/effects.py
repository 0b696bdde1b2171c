"""The effect ledger: commit the intent, act, confirm under the fence. What did not finish is recovered by class.

transactional: act and record are one transaction. keyed: repeat with the same key. verifiable: look, then adopt or
redo. opaque: the result cannot be observed, so the effect is marked in_doubt and never repeated silently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, get_args

from longshore.domain.identity.keys import check_text
from longshore.domain.model import Lease, Scope
from longshore.errors import BadInput, Conflict, LongshoreError, ResultTooLarge
from longshore.ledger.named_rows import EffectRow, FencedRow
from longshore.ledger.operations.fencing import FencedJob, fence, lost
from longshore.ledger.operations.stages import finalize
from longshore.ledger.operations.tenant_budgets import over_budget
from longshore.ledger.records import Begun, Effect, EffectClass, Intent
from longshore.ledger.rows import by_tenant, check_lease, check_scope, encoded
from longshore.ledger.transaction import Row, Tx

RESULT_LIMIT: Final = 4 << 20  # bytes of a result
_CLASSES: Final = frozenset(get_args(EffectClass))


def begin(tx: Tx, intents: Sequence[Intent]) -> list[Begun | LongshoreError]:
    """Commit intents; return for each whether it is new, already done, or was left unfinished."""
    for intent in intents:
        if not isinstance(intent, Intent):
            raise BadInput(f"an intent is an Intent, not {type(intent).__name__}")
        check_text("kind", intent.kind, limit=200)
        check_text("key", intent.key, limit=500)
        if intent.effect_class not in _CLASSES:
            raise BadInput(f"an effect is {', '.join(sorted(_CLASSES))}, not {intent.effect_class!r}")
    answer: list[Begun | LongshoreError | None] = [None] * len(intents)
    for tenant, group in by_tenant(intents, lambda intent: intent.lease.scope):
        tx.enter(tenant)
        held = fence(tx, [intent.lease for _, intent in group])
        rows = [(*intent.lease.scope, intent.key) for _, intent in group]
        known = {effect.key: effect for effect in map(effect_of, tx.many("effect_find", rows))}
        _begin_group(tx, group, held, known, answer)
    return [item for item in answer if item is not None]


def _begin_group(
    tx: Tx,
    group: Sequence[tuple[int, Intent]],
    held: FencedJob,
    known: dict[str, Effect],
    answer: list[Begun | LongshoreError | None],
) -> None:
    write: dict[tuple[str, str], Row] = {}  # by job and key: one statement writes a row once
    doubt: list[Row] = []
    final: list[tuple[FencedRow, Lease]] = []
    refused = over_budget(tx, group[0][1].lease.scope.tenant_id, [intent for _, intent in group])
    for place, (index, intent) in enumerate(group):
        row = held.get(intent.lease)
        if row is None:
            answer[index] = lost(intent.lease)
            continue
        answer[index] = begun = _judge(intent, known.get(intent.key))
        if not isinstance(begun, Begun):
            continue
        if begun.state == "in_doubt":
            doubt.append((tx.now, *intent.lease.scope, intent.key))
        elif begun.state != "confirmed" and place in refused:
            answer[index] = refused[place]
        elif begun.state != "confirmed":
            write[intent.lease.job_id, intent.key] = _row(intent, tx.now)
            if intent.kind == "FINALIZE":
                final.append((row, intent.lease))
    tx.send("effect_intend", list(write.values()))
    tx.send("effect_doubt", doubt)
    finalize(tx, final)


def _row(intent: Intent, now: int) -> Row:
    request = encoded(intent.request) if intent.request else None
    lease = intent.lease
    return (
        *lease.scope,
        lease.job_id,
        intent.key,
        intent.kind,
        intent.effect_class,
        intent.fingerprint,
        request,
        lease.epoch,
        now,
    )


def _judge(intent: Intent, known: Effect | None) -> Begun | LongshoreError:
    """Decide from the recorded effect of this key; if its outcome was not recorded, from its class."""
    if known is None:
        return Begun("new")
    if known.job_id != intent.lease.job_id or known.kind != intent.kind:
        return Conflict(f"the key {intent.key[:80]} belongs to another effect", job_id=known.job_id)
    if known.fingerprint != intent.fingerprint:
        return Conflict(
            f"the {intent.kind} of job {known.job_id} was begun with another request", hint="give it another key"
        )
    if known.state == "confirmed":
        return Begun("confirmed", known.result)
    if known.state in ("failed", "abandoned"):
        return Begun("new")
    if known.state == "in_doubt" or known.effect_class == "opaque":
        return Begun("in_doubt", None, known.request)
    return Begun("unfinished", None, known.request)


def confirm(tx: Tx, lease: Lease, key: str, result: dict[str, Any], *, limit: int = RESULT_LIMIT) -> None:
    """Store the result of an effect whose intent this lease holds; raise if it is invalid or too large."""
    text = checked_result(result, limit)
    tx.enter(check_lease(lease).scope.tenant_id)
    if fence(tx, [lease]).get(lease) is None:
        raise lost(lease)
    code = str(result.get("code", "OK"))[:200]
    if not tx.many("effect_confirm", [(tx.now, code, text, *lease.scope, lease.job_id, key, lease.epoch)]):
        raise Conflict(f"job {lease.job_id} has no open effect {key[:80]} of epoch {lease.epoch}")


def effect_failed(tx: Tx, lease: Lease, key: str, code: str) -> None:
    """Record that an effect raised: it is not done."""
    tx.enter(check_lease(lease).scope.tenant_id)
    if fence(tx, [lease]).get(lease) is None:
        raise lost(lease)
    tx.send("effect_failed", [(tx.now, code[:200], *lease.scope, lease.job_id, key, lease.epoch)])


def effect_in_doubt(tx: Tx, lease: Lease, key: str) -> None:
    """Mark an effect in doubt: it happened, its result could not be stored, and it must not be repeated."""
    tx.enter(check_lease(lease).scope.tenant_id)
    if fence(tx, [lease]).get(lease) is None:
        raise lost(lease)
    tx.send("effect_doubt", [(tx.now, *lease.scope, key)])


def transactional(
    tx: Tx, intent: Intent, act: Callable[[Tx], dict[str, Any]], *, limit: int = RESULT_LIMIT
) -> dict[str, Any]:
    """Act and record in this one transaction."""
    begun = begin(tx, [intent])[0]
    if isinstance(begun, LongshoreError):
        raise begun
    if begun.state == "confirmed":
        return begun.result or {}
    result = act(tx)
    confirm(tx, intent.lease, intent.key, result, limit=limit)
    return result


def checked_result(result: Any, limit: int = RESULT_LIMIT) -> str:
    """Return the text of a result, or refuse it: a result is a JSON object of bounded size, and is never cut."""
    if not isinstance(result, dict):
        raise BadInput(f"an effect's result is a dict, not {type(result).__name__}")
    text = encoded(result)
    size = len(text) if text.isascii() else len(text.encode())
    if size > limit:
        raise ResultTooLarge(
            f"the result has {size} bytes; {limit} are kept", hint="store it as an artifact and keep its id"
        )
    return text


def check_size(size: int | None, limit: int = RESULT_LIMIT) -> None:
    """Refuse a result that is known to be too large, before the effect runs."""
    if size is not None and size > limit:
        raise ResultTooLarge(f"the result would have {size} bytes; {limit} are kept; nothing was run")


def get_effect_result(tx: Tx, scope: Scope, key: str) -> dict[str, Any] | None:
    """Return the stored result of an effect; None when it is not done."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    rows = tx.many("effect_find", [(*scope, check_text("key", key))])
    effect = effect_of(rows[0]) if rows else None
    return effect.result if effect is not None and effect.state == "confirmed" else None


def unfinished(tx: Tx, scope: Scope, job_id: str) -> list[Effect]:
    """Return the open intents of a job, oldest first."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    rows = tx.all("effects_unfinished", tenant_id=scope.tenant_id, project_id=scope.project_id, job_id=job_id)
    return [effect_of(row) for row in rows]


def cleanup_stale_ops(tx: Tx) -> int:
    """Close intents that no worker can finish: opaque ones become in_doubt, the others abandoned."""
    return tx.run("effects_stale_opaque", now=tx.now) + tx.run("effects_stale", now=tx.now)


def effect_of(columns: Row) -> Effect:
    """Make an effect of the columns {effect}."""
    row = EffectRow._make(columns)
    return Effect(
        job_id=row.job_id,
        key=row.op_key,
        kind=row.kind,
        effect_class=row.effect_class,
        state=row.state,
        epoch=row.epoch,
        fingerprint=row.fingerprint,
        request=json.loads(row.request) if row.request else {},
        result=json.loads(row.result) if row.result else None,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )
