"""Cancel and retry jobs, and wake waiting ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from longshore.domain.identity.keys import check_text
from longshore.domain.kinds import CANCELED
from longshore.domain.model import Planned, Scope, Status
from longshore.errors import BadInput, NotFound
from longshore.ledger.named_rows import ControlRow, JobRow
from longshore.ledger.operations.make_claimable import mark_lanes
from longshore.ledger.operations.planning import add_counts, plan
from longshore.ledger.queries.due_work import scopes_known
from longshore.ledger.records import CancelResult
from longshore.ledger.rows import check_scope, encoded, job_of
from longshore.ledger.transaction import Row, Tx


def cancel(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> CancelResult:
    """Cancel jobs: pending ones at once, running ones by asking their worker to stop."""
    rows = _rows(tx, scope, job_ids)
    now_over = [row for row in rows if row.status == "pending" and row.lease_owner is None]
    asked = [row for row in rows if row.status == "processing" or row.lease_owner is not None]
    tx.send("cancel_now", [(tx.now, row.seq) for row in now_over])
    tx.send("cancel_request", [(tx.now, row.seq) for row in asked])
    events: list[Row] = [(*scope, row.job_id, CANCELED, tx.now, encoded({"from": row.stage})) for row in now_over]
    events += [
        (*scope, row.job_id, "cancel_requested", tx.now, None) for row in asked if row.cancel_requested_at is None
    ]
    tx.send("event_insert", events)
    changes: Counter[tuple[str, str, str]] = Counter()
    changes[(*scope, Status.PENDING.value)] -= len(now_over)
    changes[(*scope, Status.CANCELED.value)] += len(now_over)
    add_counts(tx, changes)
    found = {row.job_id for row in rows}
    return CancelResult(
        canceled=tuple(row.job_id for row in now_over),
        requested=tuple(row.job_id for row in asked),
        unchanged=tuple(row.job_id for row in rows if row.status not in ("pending", "processing")),
        missing=tuple(job_id for job_id in job_ids if job_id not in found),
    )


def retry(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> list[Planned]:
    """Make a linked new job of each that failed or was canceled; one that waits for a retry is tried at once."""
    rows = _rows(tx, scope, job_ids)
    if not rows and job_ids:
        raise NotFound(f"job {str(job_ids[0])[:80]} not found")
    woken = tx.many("waiting_now", [(row.seq,) for row in rows])
    mark_lanes(tx, woken)
    over = tx.all("retry_rows", job_ids=encoded(list(job_ids)), **scope._asdict())
    planned = []
    for row in over:
        job = job_of(row)
        request = replace(job.request, retry_of=job.job_id)
        planned += plan(tx, scope, [request], again="failed")
        if request.key is None:  # planning finds the jobs that it replaces by their keys
            tx.many("plan_supersede", [(tx.now, JobRow._make(row).seq)])
    return planned


def wake_waiting(tx: Tx, scope: Scope | None, reason: str) -> int:
    """Make the jobs claimable at once that wait because of this reason, of one tenant and project or of all."""
    count = 0
    for where in [scope] if scope else scopes_known(tx):
        tx.enter(where.tenant_id)
        woken = tx.many("waiting_now", tx.all("waiting_because", reason=reason, **where._asdict()))
        mark_lanes(tx, woken)
        count += len(woken)
    return count


def is_waiting(tx: Tx, scope: Scope | None, reason: str) -> bool:
    """Return whether jobs wait because of this reason. Only reads."""
    for where in [scope] if scope else scopes_known(tx):
        tx.enter(where.tenant_id)
        if tx.all("waiting_because", reason=reason, **where._asdict()):
            return True
    return False


def _rows(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> list[ControlRow]:
    check_scope(scope)
    tx.enter(scope.tenant_id)
    if isinstance(job_ids, str):
        raise BadInput("job_ids is a list of ids, not one text")
    ids = [check_text("job_id", job_id, limit=200) for job_id in job_ids]
    rows = tx.all("control_rows", job_ids=encoded(ids), **scope._asdict()) if ids else []
    return [ControlRow._make(row) for row in rows]
