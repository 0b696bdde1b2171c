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
    totals |= {"missing": 0, "missing_bytes": 0}
    for count, size, is_back in tx.all("held_lost", **scope._asdict()):
        totals["artifacts"], totals["artifact_bytes"] = (
            totals["artifacts"] - count,
            totals["artifact_bytes"] - count * size,
        )
        if not is_back:
            totals["blobs"], totals["blob_bytes"] = totals["blobs"] - 1, totals["blob_bytes"] - size
            totals["missing"], totals["missing_bytes"] = (
                totals["missing"] + count,
                totals["missing_bytes"] + count * size,
            )
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
