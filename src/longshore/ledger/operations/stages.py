"""Stages: a leased job goes forward along the table of its kind (`domain.kinds`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from longshore.domain.kinds import check_move, is_terminal, kind_of, status_of
from longshore.domain.model import Lease, Scope
from longshore.errors import InvalidTransition, LongshoreError, NotFound
from longshore.ledger.event_facts import facts_text
from longshore.ledger.named_rows import FencedRow
from longshore.ledger.operations.fencing import fence, lost
from longshore.ledger.operations.make_claimable import free_slots
from longshore.ledger.records import Move
from longshore.ledger.rows import by_tenant, check_lease, check_scope
from longshore.ledger.transaction import Row, Tx

Progress = tuple[Lease, int, int | None]  # bytes done, and in all if that is known
_MOST: Final = (1 << 63) - 1  # a server may declare any length


def advance(tx: Tx, moves: Sequence[Move]) -> list[LongshoreError | None]:
    """Move leased jobs to their next stages; what could not be moved is named in its place."""
    answer: list[LongshoreError | None] = [None] * len(moves)
    for tenant, group in by_tenant(moves, lambda move: move.lease.scope):
        tx.enter(tenant)
        held = fence(tx, [move.lease for _, move in group])
        for index, move in group:
            row = held.get(move.lease)
            if row is None:
                answer[index] = lost(move.lease)
                continue
            try:
                held.put(_move(tx, row, move))
            except LongshoreError as error:
                answer[index] = error
    return answer


def _move(tx: Tx, row: FencedRow, move: Move) -> FencedRow:
    check_move(row.job_type, row.job_id, row.stage, move.stage)
    if is_terminal(row.job_type, move.stage):
        raise InvalidTransition(f"job {row.job_id} ends by settle, not by advancing to {move.stage}")
    step(tx, [(row, move.lease, move.stage)])
    if move.facts:
        tx.send("event_insert", [_event(row, move, tx.now)])
    return row._replace(stage=move.stage)


def step(tx: Tx, steps: Sequence[tuple[FencedRow, Lease, str]]) -> None:
    """Write stages that were checked. The finalized stage frees the host's slot."""
    plain, final, hosts = [], [], []
    for row, lease, stage in steps:
        kind = kind_of(row.job_type)
        counts = 1 if not kind.counted_at_grant and row.stage == kind.granted else 0
        if stage == kind.finalized:
            final.append((counts, tx.now, row.seq, lease.epoch))
            hosts.append(row.slot_host)
        else:
            plain.append((stage, counts, tx.now, row.seq, lease.epoch))
    tx.send("move_stage", plain)
    tx.send("move_finalized", final)
    free_slots(tx, hosts)


def finalize(tx: Tx, rows: Sequence[tuple[FencedRow, Lease]]) -> None:
    """Bring jobs to their kind's finalized stage by legal moves; those that are there, or have none, stay."""
    paths = [(row, lease, kind_of(row.job_type).to_finalized.get(row.stage, ())) for row, lease in rows]
    for moves_left in (2, 1):
        if steps := [(row, lease, path[-moves_left]) for row, lease, path in paths if len(path) >= moves_left]:
            step(tx, steps)


def _event(row: FencedRow, move: Move, now: int) -> Row:
    return (*move.lease.scope, row.job_id, "stage", now, facts_text({"to": move.stage, **move.facts}))


def advance_state(tx: Tx, lease: Lease, to_state: str, allowed_from: Sequence[str] | None = None) -> None:
    """Move one leased job to a stage; raise if its current stage is not in `allowed_from` (if given)."""
    for stage in (to_state, *(allowed_from or ())):
        status_of(check_lease(lease).job.job_type, stage)
    if allowed_from is not None:
        tx.enter(lease.scope.tenant_id)
        row = fence(tx, [lease]).get(lease)
        if row is None:
            raise lost(lease)
        if row.stage not in allowed_from:
            wanted = ", ".join(allowed_from)
            raise InvalidTransition(f"job {lease.job_id} is {row.stage}, and {to_state} was to follow only {wanted}")
    error = advance(tx, [Move(lease, to_state)])[0]
    if error is not None:
        raise error


def get_current_state(tx: Tx, scope: Scope, job_id: str) -> str:
    """Return the current stage of a job."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    row = tx.one("job_stage", tenant_id=scope.tenant_id, project_id=scope.project_id, job_id=job_id)
    if row is None:
        raise NotFound(f"job {str(job_id)[:80]} not found")
    (stage,) = row
    return str(stage)


def report(tx: Tx, progress: Sequence[Progress]) -> None:
    """Store how far transfers are (bytes done, bytes in all if known); lost leases write nothing."""
    for tenant, group in by_tenant(progress, lambda item: item[0].scope):
        tx.enter(tenant)
        held = fence(tx, [lease for _, (lease, _, _) in group])
        rows: list[tuple[Any, ...]] = []
        for _, (lease, done, total) in group:
            if (row := held.get(lease)) is not None:
                done, total = min(done, _MOST), None if total is None or total > _MOST else total
                percent = min(99, done * 100 // total) if total else None
                rows.append((percent, done, total, row.seq, lease.epoch))
        tx.send("set_progress", rows)
