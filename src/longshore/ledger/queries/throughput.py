"""Figures of one tenant and project: stored artifacts, and what arrived when."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from longshore.domain.model import SECOND, Micros, Scope
from longshore.ledger.ids import floor_id
from longshore.ledger.transaction import Tx


def held_totals(tx: Tx, scope: Scope) -> dict[str, int]:
    """Return how much is held, from counters, without what is lost; `missing` and `missing_bytes` say how much that is."""
    tx.enter(scope.tenant_id)
    totals = {name: int(n) for name, n in tx.all("held_totals", **scope._asdict())}
    totals["missing"], totals["missing_bytes"] = map(int, tx.one("held_lost", **scope._asdict()) or (0, 0))
    blobs, blob_bytes = tx.one("blobs_lost", **scope._asdict()) or (0, 0) if totals["missing"] else (0, 0)
    lost = {
        "artifacts": totals["missing"],
        "artifact_bytes": totals["missing_bytes"],
        "blobs": blobs,
        "blob_bytes": blob_bytes,
    }
    totals |= {name: max(0, totals.get(name, 0) - int(count)) for name, count in lost.items()}
    return totals


class LostResult(NamedTuple):
    """A result of a job whose bytes are lost."""

    job_id: str
    url: str | None
    name: str | None
    sha256: str
    size_bytes: int


def lost_results(tx: Tx, scope: Scope, limit: int = 1_000) -> list[LostResult]:
    """Return results whose bytes are lost and that no later job brought again."""
    tx.enter(scope.tenant_id)
    return [LostResult(*row) for row in tx.all("lost_results", many=limit, **scope._asdict())]


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
