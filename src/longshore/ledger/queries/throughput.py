"""Figures of one tenant and project: stored artifacts, and what arrived when."""

from __future__ import annotations

from collections.abc import Callable

from longshore.domain.model import SECOND, Micros, Scope
from longshore.ledger.ids import floor_id
from longshore.ledger.transaction import Tx


def held_totals(tx: Tx, scope: Scope) -> dict[str, int]:
    """Return how much is held and how much was saved, from counters."""
    tx.enter(scope.tenant_id)
    rows = tx.all("held_totals", tenant_id=scope.tenant_id, project_id=scope.project_id)
    return {name: int(n) for name, n in rows}


def arrivals(
    tx: Tx, scope: Scope, since: Callable[[Micros], Micros], slot_s: int, limit: int = 200_000
) -> tuple[Micros, list[tuple[Micros, int, int]]]:
    """Return `now` and what was registered since a moment that follows from it, as (slot begin, files, bytes)."""
    tx.enter(scope.tenant_id)
    step = slot_s * SECOND
    rows = tx.all(
        "arrivals",
        tenant_id=scope.tenant_id,
        project_id=scope.project_id,
        floor_id=floor_id(since(tx.now)),
        step=step,
        limit=limit,
    )
    return tx.now, [(slot * step, int(files), int(size or 0)) for slot, files, size in rows]
