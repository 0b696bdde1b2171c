"""Enforce tenant budgets: bytes, items and concurrent jobs. The ledger counts them, so they hold across all machines.

A limit stored in the ledger overrides the settings of the calling process (`tx.budget`). On PostgreSQL a transaction
that counts against a budget locks the budget's row until it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from longshore.domain.identity.keys import check_text
from longshore.domain.policy.tenant_budgets import PLENTY, Budget, Usage, may_add, may_plan, may_start, overlaid
from longshore.errors import BadInput, OverBudget
from longshore.ledger.records import Intent
from longshore.ledger.rows import encoded
from longshore.ledger.transaction import Tx

LIMITS: Final = ("bytes", "items", "jobs")
HINT: Final = "`longshore budget` shows and changes it; purge makes room"


def budget(tx: Tx, tenant_id: str) -> tuple[Budget, Usage]:
    """Return a tenant's limits and what it has."""
    tx.enter(tenant_id)
    return overlaid(tx.one("budget_row", tenant_id=tenant_id), tx.budget), _used(tx, tenant_id)


def set_budget(tx: Tx, tenant_id: str, changes: dict[str, Any]) -> None:
    """Change one tenant's limits (bytes, items, jobs). None means the configured default, 0 means unlimited."""
    check_text("tenant_id", tenant_id, limit=200)
    for name, value in changes.items():
        if name not in LIMITS:
            raise BadInput(f"a budget has no {name!r}")
        if value is not None and (type(value) is not int or not 0 <= value < PLENTY):
            raise BadInput(f"{name} is a whole number from 0, not {value!r}")
    tx.enter(tenant_id)
    row = tx.one("budget_held", tenant_id=tenant_id) or (None, None, None)
    said = dict(zip(LIMITS, row, strict=True)) | changes
    tx.run("budget_put", tenant_id=tenant_id, now=tx.now, **said)


def claimable(tx: Tx, tenant_id: str) -> int:
    """Return how many jobs of a tenant a claim may take; 0 while another transaction has the budget's row locked."""
    tx.enter(tenant_id)
    if tx.budget and tx.dialect == "postgres":
        tx.run("budget_known", tenant_id=tenant_id, now=tx.now)
    row = tx.one("budget_free", tenant_id=tenant_id)
    *given, free = row or (None, 1)
    if not free:
        return 0
    limits = overlaid(tuple(given) if row else None, tx.budget)
    return may_start(limits, _used(tx, tenant_id)) if limits.jobs else PLENTY


def check_items(tx: Tx, tenant_id: str, more: int) -> None:
    """Refuse jobs that a tenant's items do not allow; nothing is planned then."""
    limits = _held(tx, tenant_id)
    if not limits.items:
        return
    used = _used(tx, tenant_id)
    if more > may_plan(limits, used):
        raise OverBudget(
            f"the tenant may have {limits.items} items: it has {used.artifacts} artifacts and {used.waiting + used.jobs}"
            f" jobs under way; {more} more are too many",
            hint=HINT,
        )


def over_budget(tx: Tx, tenant_id: str, intents: Sequence[Intent]) -> dict[int, OverBudget]:
    """Return the publications, by index, that exceed the tenant's byte limit. Bytes already stored are free."""
    sizes = {at: int(one.request.get("size_bytes") or 0) for at, one in enumerate(intents) if one.kind == "FINALIZE"}
    limits = _held(tx, tenant_id) if sizes else Budget()
    if not limits.bytes:
        return {}
    jobs = encoded([one.lease.job_id for one in intents])
    (promised,) = tx.one("budget_promised", tenant_id=tenant_id, job_ids=jobs) or (0,)
    left = may_add(limits, _used(tx, tenant_id), int(promised))
    refused: dict[int, OverBudget] = {}
    for at, size in sizes.items():
        sha256, scope = str(intents[at].request.get("sha256")), intents[at].lease.scope
        if tx.all("blobs_known", sha256s=encoded([sha256]), **scope._asdict()):
            continue
        if size > left:
            over = OverBudget(f"the tenant may add {left} of its {limits.bytes} bytes; {size} are too many", hint=HINT)
            over.facts = {"quota_need": size, "quota_tenant_left": left, "quota_decision": over.reason}
            refused[at] = over
        else:
            left -= size
    return refused


def _held(tx: Tx, tenant_id: str) -> Budget:
    tx.enter(tenant_id)
    if tx.budget and tx.dialect == "postgres":
        tx.run("budget_known", tenant_id=tenant_id, now=tx.now)
    return overlaid(tx.one("budget_held", tenant_id=tenant_id), tx.budget)


def _used(tx: Tx, tenant_id: str) -> Usage:
    counts = {name: int(n) for name, n in tx.all("budget_used", tenant_id=tenant_id)}
    return Usage(
        counts.get("blob_bytes", 0), counts.get("artifacts", 0), counts.get("pending", 0), counts.get("processing", 0)
    )
