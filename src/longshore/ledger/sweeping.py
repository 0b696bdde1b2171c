"""What becomes claimable by itself: expired leases, waiting jobs that are due, lanes whose host rests no longer.

A worker that died is noticed here; its jobs go back to the start of an attempt. Each sweep is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from longshore.domain.model import Micros, Scope, Status
from longshore.domain.states import CANCELED, TORRENT
from longshore.ledger import meter
from longshore.ledger.planning import add_counts
from longshore.ledger.records import Swept
from longshore.ledger.rows import by_tenant, encoded
from longshore.ledger.tx import Row, Tx

SWEEP: Final = 1_000


def sweep(tx: Tx, *, many: int = SWEEP) -> Swept:
    """Make claimable what is due; touch a bounded number of rows."""
    expired = tx.all("expired_leases", now=tx.now, many=many)
    give_back(tx, expired, "expired")
    promoted = tx.all("promote_waiting", now=tx.now, many=many)
    mark_lanes(tx, ((lane, priority) for lane, priority, job_type in promoted if job_type != TORRENT))
    tx.run("lanes_unpark_due", now=tx.now)
    return Swept(len(expired), len(promoted))


def give_back(tx: Tx, rows: Sequence[Row], outcome: str) -> None:
    """End leases that ended without a word: canceled where that was asked for, ready again otherwise."""
    if not rows:
        return
    meter.SEEN[outcome] += len(rows)
    for tenant, group in by_tenant(rows, lambda row: Scope(row[1], row[2])):
        tx.enter(tenant)
        _end_leases(tx, [row for _, row in group], outcome)
    changes: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        stays = row[4] == TORRENT and row[11] is None
        if not stays:
            changes[row[1], row[2], row[6]] -= 1
            changes[row[1], row[2], (CANCELED if row[11] is not None else Status.PENDING.value)] += 1
    add_counts(tx, changes)
    mark_lanes(tx, ((row[9], row[10]) for row in rows if row[11] is None and row[4] != TORRENT))
    free_slots(tx, (row[8] for row in rows))


def _end_leases(tx: Tx, rows: Sequence[Row], outcome: str) -> None:
    tx.many("give_back", [(tx.now, row[0], row[7]) for row in rows if row[11] is None])
    tx.many("end_canceled", [(tx.now, row[0], row[7]) for row in rows if row[11] is not None])
    tx.many("claim_end", [(tx.now, outcome, None, row[1], row[2], row[3], row[7]) for row in rows])
    tx.many("event_insert", [_event(row, outcome, tx.now) for row in rows])


def _event(row: Row, outcome: str, now: Micros) -> Row:
    kind = CANCELED if row[11] is not None else f"lease_{outcome}"
    return (row[1], row[2], row[3], kind, now, encoded({"from": row[5], "epoch": row[7]}))


def mark_lanes(tx: Tx, ready: Iterable[tuple[int, int]]) -> None:
    """Mark the lanes that got ready jobs: (lane, priority) pairs."""
    tops: dict[int, int] = {}
    for lane, priority in ready:
        tops[lane] = max(priority, tops.get(lane, priority))
    tx.many("lane_ready", [(top, lane) for lane, top in sorted(tops.items())])


def free_slots(tx: Tx, hosts: Iterable[str | None]) -> None:
    """Let the lanes of these hosts be looked at again."""
    tx.many("lanes_unpark_hosts", [(host,) for host in sorted({host for host in hosts if host})])


def release_dead(tx: Tx, owners: Sequence[str]) -> int:
    """Give back what processes hold that are known to be dead; fencing makes a mistake harmless."""
    rows = tx.all("leases_of", owners=encoded(list(owners)), many=100_000) if owners else []
    give_back(tx, rows, "dead")
    return len(rows)


def cleanup_stale_leases(tx: Tx) -> int:
    """Give back every expired lease now (claim does it by itself, in bounded steps)."""
    count = 0
    while rows := tx.all("expired_leases", now=tx.now, many=SWEEP):
        give_back(tx, rows, "expired")
        count += len(rows)
    return count


def next_due(tx: Tx) -> Micros | None:
    """Tell when something becomes claimable without anybody doing anything; None: never."""
    row = tx.one("next_due", now=tx.now)
    return row[0] if row else None
