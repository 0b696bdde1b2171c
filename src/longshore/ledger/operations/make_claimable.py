"""What becomes claimable by itself: expired leases, waiting jobs that are due, lanes whose host rests no longer.

A worker that died is noticed here; its jobs go back to the start of an attempt. Each sweep is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from longshore.domain.kinds import CANCELED, kind_of
from longshore.domain.model import Micros, Scope, Status
from longshore.ledger import process_metrics
from longshore.ledger.named_rows import LeaseRow
from longshore.ledger.operations.planning import add_counts
from longshore.ledger.records import Swept
from longshore.ledger.rows import by_tenant, encoded
from longshore.ledger.transaction import Row, Tx

SWEEP: Final = 1_000


def expire_and_promote(tx: Tx, *, many: int = SWEEP) -> Swept:
    """Make claimable what is due; touch a bounded number of rows."""
    expired = _expired(tx, many)
    release_expired(tx, expired, "expired")
    promoted = tx.all("promote_waiting", now=tx.now, many=many)
    mark_lanes(tx, promoted)
    tx.send("lanes_unpark_due", [(tx.now,)])
    return Swept(len(expired), len(promoted))


def _expired(tx: Tx, many: int) -> list[LeaseRow]:
    return [LeaseRow._make(row) for row in tx.all("expired_leases", now=tx.now, many=many)]


def release_expired(tx: Tx, rows: Sequence[LeaseRow], outcome: str) -> None:
    """Release expired leases: cancel the jobs whose cancellation was requested, make the others ready again."""
    if not rows:
        return
    process_metrics.LEASE_EVENTS[outcome] += len(rows)
    for tenant, group in by_tenant(rows, lambda row: Scope(row.tenant_id, row.project_id)):
        tx.enter(tenant)
        _end_leases(tx, [row for _, row in group], outcome)
    changes: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        stays = kind_of(row.job_type).external and row.cancel_requested_at is None
        if not stays:
            changes[row.tenant_id, row.project_id, row.status] -= 1
            changes[
                row.tenant_id,
                row.project_id,
                (CANCELED if row.cancel_requested_at is not None else Status.PENDING.value),
            ] += 1
    add_counts(tx, changes)
    mark_lanes(
        tx,
        (
            (row.lane_id, row.priority)
            for row in rows
            if row.cancel_requested_at is None and not kind_of(row.job_type).external
        ),
    )
    free_slots(tx, (row.slot_host for row in rows))


def _end_leases(tx: Tx, rows: Sequence[LeaseRow], outcome: str) -> None:
    tx.send("give_back", [_given_back(row, tx.now) for row in rows if row.cancel_requested_at is None])
    tx.send("end_canceled", [(tx.now, row.seq, row.lease_epoch) for row in rows if row.cancel_requested_at is not None])
    tx.send(
        "claim_end",
        [(tx.now, outcome, None, row.tenant_id, row.project_id, row.job_id, row.lease_epoch) for row in rows],
    )
    tx.send("event_insert", [_event(row, outcome, tx.now) for row in rows])


def _given_back(row: LeaseRow, now: Micros) -> Row:
    kind = kind_of(row.job_type)
    stage = kind.released(row.stage)
    return (kind.ready, kind.stages[stage].value, stage, now, row.seq, row.lease_epoch)


def _event(row: LeaseRow, outcome: str, now: Micros) -> Row:
    kind = CANCELED if row.cancel_requested_at is not None else f"lease_{outcome}"
    return (
        row.tenant_id,
        row.project_id,
        row.job_id,
        kind,
        now,
        encoded({"from": row.stage, "epoch": row.lease_epoch}),
    )


def mark_lanes(tx: Tx, ready: Iterable[tuple[int, int]]) -> None:
    """Mark the lanes that got ready jobs: (lane, priority) pairs."""
    tops: dict[int, int] = {}
    for lane, priority in ready:
        tops[lane] = max(priority, tops.get(lane, priority))
    tx.send("lane_ready", [(top, lane) for lane, top in sorted(tops.items())])


def free_slots(tx: Tx, hosts: Iterable[str | None]) -> None:
    """Unpark the lanes of these hosts."""
    tx.send("lanes_unpark_hosts", [(host,) for host in sorted({host for host in hosts if host})])


def release_dead(tx: Tx, owners: Sequence[str]) -> int:
    """Release the leases of processes that are known to be dead; fencing makes a mistake harmless."""
    found = tx.all("leases_of", owners=encoded(list(owners)), many=100_000) if owners else []
    rows = [LeaseRow._make(row) for row in found]
    release_expired(tx, rows, "dead")
    return len(rows)


def cleanup_stale_leases(tx: Tx) -> int:
    """Release every expired lease now (claim does it by itself, in bounded steps)."""
    count = 0
    while rows := _expired(tx, SWEEP):
        release_expired(tx, rows, "expired")
        count += len(rows)
    return count


def next_due(tx: Tx) -> Micros | None:
    """Return when the next job becomes claimable by itself; None: never."""
    due: Micros | None
    (due,) = tx.one("next_due", now=tx.now) or (None,)
    return due
