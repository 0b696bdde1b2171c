"""Why jobs wait: what holds each of them back now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from longshore.domain.model import Micros, Scope
from longshore.domain.policy.host_limits import NEVER
from longshore.domain.settings import HostsSettings
from longshore.ledger.operations.hosts import PAUSED, rests_of
from longshore.ledger.queries.lookup import scope_values
from longshore.ledger.rows import encoded
from longshore.ledger.transaction import Tx

COUNTED: Final = 10_000  # jobs ahead of another


@dataclass(frozen=True, slots=True)
class JobWait:
    """What one job waits for: `paused`, `resting`, `backoff`, `host_busy`, `external` or `turn`."""

    kind: str
    host: str
    reason: str = ""
    until: Micros | None = None
    attempts: int = 0
    ahead: int | None = None  # ready jobs of the same host that are taken before; None: not counted


class _Row(NamedTuple):
    job_id: str
    host: str
    ready: int
    next_attempt_at: Micros | None
    error_code: str | None
    attempts: int
    parked_until: Micros | None
    lane_id: int
    priority: int
    seq: int


def why_waiting(
    tx: Tx, scope: Scope, defaults: HostsSettings, job_ids: Sequence[str], *, with_place: bool = False
) -> dict[str, JobWait]:
    """Return what each of the jobs waits for; those that are leased or over are left out."""
    if not job_ids:
        return {}
    rows = [_Row(*row) for row in tx.all("waits_each", job_ids=encoded(list(job_ids)), **scope_values(tx, scope))]
    rests = rests_of(tx, {row.host for row in rows}, defaults=defaults)
    return {
        row.job_id: _wait(row, rests.get(row.host), tx.now, _ahead(tx, row) if with_place else None) for row in rows
    }


def _wait(row: _Row, rest: tuple[Micros, str] | None, now: Micros, ahead: int | None) -> JobWait:
    """Return the wait that ends last: a host's rest outlasts a backoff that ends sooner."""
    due = row.next_attempt_at or 0
    if rest is not None and rest[0] >= due:
        until, reason = rest
        kind = "paused" if reason == PAUSED and until >= NEVER else "resting"
        return JobWait(kind, row.host, reason, None if until >= NEVER else until, row.attempts, ahead)
    if due:
        return JobWait("backoff", row.host, row.error_code or "", due, row.attempts)
    if not row.ready:
        return JobWait("external", row.host)
    if row.parked_until is not None and row.parked_until > now:
        return JobWait("host_busy", row.host, ahead=ahead)
    return JobWait("turn", row.host, ahead=ahead)


def _ahead(tx: Tx, row: _Row) -> int | None:
    if not row.ready:
        return None
    place = {"lane_id": row.lane_id, "priority": row.priority, "seq": row.seq, "many": COUNTED}
    (count,) = tx.one("jobs_ahead", **place) or (0,)
    return int(count)
