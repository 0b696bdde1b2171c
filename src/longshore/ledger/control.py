"""Control: canceling, retrying, and putting right what should never be wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from longshore.domain.keys import check_text
from longshore.domain.model import Planned, Scope, Status
from longshore.domain.states import CANCELED, TORRENT
from longshore.errors import BadInput, NotFound
from longshore.ledger.effects import cleanup_stale_ops
from longshore.ledger.planning import add_counts, plan
from longshore.ledger.records import CancelResult
from longshore.ledger.rows import check_scope, encoded, job_of
from longshore.ledger.sweeping import cleanup_stale_leases, mark_lanes
from longshore.ledger.tx import Row, Tx


def cancel(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> CancelResult:
    """Cancel jobs: at once where nobody works on them, by request where somebody does."""
    rows = _rows(tx, scope, job_ids)
    now_over = [row for row in rows if row[2] == "pending" and row[5] is None]
    asked = [row for row in rows if row[2] == "processing" or row[5] is not None]
    tx.many("cancel_now", [(tx.now, row[1]) for row in now_over])
    tx.many("cancel_request", [(tx.now, row[1]) for row in asked])
    events: list[Row] = [(*scope, row[0], CANCELED, tx.now, encoded({"from": row[3]})) for row in now_over]
    events += [(*scope, row[0], "cancel_requested", tx.now, None) for row in asked if row[7] is None]
    tx.many("event_insert", events)
    changes: Counter[tuple[str, str, str]] = Counter()
    changes[(*scope, Status.PENDING.value)] -= len(now_over)
    changes[(*scope, Status.CANCELED.value)] += len(now_over)
    add_counts(tx, changes)
    found = {row[0] for row in rows}
    return CancelResult(
        canceled=tuple(row[0] for row in now_over),
        requested=tuple(row[0] for row in asked),
        unchanged=tuple(row[0] for row in rows if row[2] not in ("pending", "processing")),
        missing=tuple(job_id for job_id in job_ids if job_id not in found),
    )


def retry(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> list[Planned]:
    """Make a linked new job of each that failed or was canceled; one that waits for a retry is tried at once."""
    rows = _rows(tx, scope, job_ids)
    if not rows and job_ids:
        raise NotFound(f"there is no job {str(job_ids[0])[:80]} here")
    woken = tx.many("waiting_now", [(row[1],) for row in rows])
    mark_lanes(tx, ((lane, priority) for lane, priority, job_type in woken if job_type != TORRENT))
    over = tx.all("retry_rows", job_ids=encoded(list(job_ids)), **scope._asdict())
    planned = []
    for row in over:
        job = job_of(row)
        request = replace(job.request, retry_of=job.job_id)
        planned += plan(tx, scope, [request], again="failed")
    return planned


def _rows(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> list[Row]:
    check_scope(scope)
    tx.enter(scope.tenant_id)
    if isinstance(job_ids, str):
        raise BadInput("job_ids is a list of ids, not one text")
    ids = [check_text("job_id", job_id, limit=200) for job_id in job_ids]
    return tx.all("control_rows", job_ids=encoded(ids), **scope._asdict()) if ids else []


@dataclass(frozen=True, slots=True)
class Healed:
    """What reconciling the ledger with itself found and put right; all of it should be 0 but expired leases."""

    expired_leases: int
    stale_effects: int
    forgotten_jobs: int
    forgotten_lanes: int
    wrong_counters: int


def reconcile_jobs(tx: Tx) -> Healed:
    """Put the ledger's own rows right: leases, intents, lanes, counters. Files are the reconciler's (engine)."""
    expired = cleanup_stale_leases(tx)
    stale = cleanup_stale_ops(tx)
    jobs = tx.all("jobs_forgotten", many=10_000)
    tx.many("job_ready", [(row[0],) for row in jobs])
    mark_lanes(tx, ((row[1], row[2]) for row in jobs))
    if tx.dialect == "postgres":
        tx.run("commits_forget")
    lanes = tx.all("lanes_forgotten")
    mark_lanes(tx, ((row[0], row[1]) for row in lanes))
    return Healed(expired, stale, len(jobs), len(lanes), _recount(tx))


def _recount(tx: Tx) -> int:
    wrong = Counter({(row[0], row[1], row[2]): int(row[3]) for row in tx.all("count_wrong")})
    add_counts(tx, wrong)
    return len(wrong)
