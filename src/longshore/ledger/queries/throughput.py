"""Figures of one tenant and project: stored artifacts, what arrived when, and what is arriving."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from longshore.domain.model import SECOND, Job, Micros, Scope
from longshore.ledger.ids import floor_id
from longshore.ledger.named_rows import JobRow
from longshore.ledger.queries.lookup import scope_values
from longshore.ledger.rows import job_of
from longshore.ledger.transaction import Tx

LARGE: Final = 64 << 10  # bytes; smaller bodies arrive within a moment
TRANSFERS: Final = 500  # that are read at once
_COLUMNS: Final = len(JobRow._fields)


@dataclass(frozen=True, slots=True)
class Transfer:
    """A job whose body is arriving."""

    job: Job
    begun_at: Micros
    resumed_from: int  # bytes that an earlier attempt received


@dataclass(frozen=True, slots=True)
class LongArrival:
    """An artifact whose body took a while: when its bytes came."""

    artifact_id: str
    begun_at: Micros
    ended_at: Micros
    size_bytes: int
    resumed_from: int


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


def transfers(tx: Tx, scope: Scope, limit: int = TRANSFERS) -> list[Transfer]:
    """Return the jobs that receive a large body now, in this and every other process."""
    found = []
    for row in tx.all("transfers", now=tx.now, many=limit, **scope_values(tx, scope)):
        claimed_at, begun_at, facts = row[_COLUMNS:]
        known = begun_at is not None and begun_at >= (claimed_at or 0)  # else the event is of an earlier attempt
        begun = begun_at if known else claimed_at or tx.now
        found.append(Transfer(job_of(row[:_COLUMNS]), begun, _resumed_from(facts) if known else 0))
    return found


def receives_anything(tx: Tx, scope: Scope) -> bool:
    """Return whether a large body is arriving, in this process or another."""
    return tx.one("transfer_any", now=tx.now, **scope_values(tx, scope)) is not None


def long_arrivals(tx: Tx, scope: Scope, since: Micros, limit: int = 20_000) -> list[LongArrival]:
    """Return the artifacts registered since a time whose bodies were large enough to have a beginning of their own."""
    rows = tx.all("long_arrivals", floor_id=floor_id(since), least=LARGE, many=limit, **scope_values(tx, scope))
    return [
        LongArrival(artifact_id, begun_at, ended_at, int(size), _resumed_from(facts))
        for artifact_id, size, ended_at, begun_at, facts in rows
        if begun_at is not None and begun_at <= ended_at
    ]


def _resumed_from(facts: str | None) -> int:
    return int(json.loads(facts or "{}").get("resumed_from_bytes") or 0)
