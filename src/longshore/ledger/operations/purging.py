"""Purge: which finished jobs, or only their history, may be deleted; and delete them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from longshore import failpoints
from longshore.domain.model import Micros, Scope, Status
from longshore.ledger.maintenance.purge_order import chains, unpointed
from longshore.ledger.operations.planning import add_counts
from longshore.ledger.rows import check_scope, encoded
from longshore.ledger.transaction import Tx

failpoints.declare("purge.delete", "purge.history")


def purgeable(
    tx: Tx, scope: Scope, status: Status, *, before: Micros, edge: int = 0, scan: int = 2_000
) -> tuple[list[list[str]], int | None]:
    """Return jobs of a status that are over since before a time and that nothing points to; and where to go on.

    Each comes with the older jobs that it was made from, if nothing else keeps them: what goes together.
    """
    check_scope(scope)
    tx.enter(scope.tenant_id)
    where = scope._asdict() | {"status": status.value, "edge": edge, "scan": scan}
    found = chains(tx, scope, before, tx.all("purge_page", before=before, **where))
    last, seen = tx.one("jobs_oldest_end", **where) or (0, 0)
    return found, int(last) if seen == scan else None


def purge(tx: Tx, scope: Scope, job_ids: Sequence[str], *, before: Micros) -> int:
    """Forget jobs that were archived; a tombstone keeps their key. Gives how many went."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    where = scope._asdict()
    rows = tx.all("purge_rows", job_ids=encoded(list(job_ids)), before=before, **where)
    rows = unpointed(tx, scope, before, rows)
    names = [(*scope, job_id) for job_id, *_ in rows]
    tx.send("purge_bury", [(tx.now, *name) for name in names])
    failpoints.hit("purge.delete")
    tx.send("purge_links", names)
    tx.send("purge_events", names)
    tx.run("purge_jobs", job_ids=encoded([job_id for job_id, *_ in rows]), **where)
    gone = Counter((scope.tenant_id, scope.project_id, str(status)) for _, status in rows)
    add_counts(tx, Counter({name: -count for name, count in gone.items()}))
    return len(rows)


def with_history(
    tx: Tx, scope: Scope, status: Status, *, before: Micros, edge: int = 0, scan: int = 2_000
) -> tuple[list[list[str]], int | None]:
    """Return completed jobs that ended before a time and whose history is not archived; and where to go on."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    where = scope._asdict() | {"status": status.value, "edge": edge, "scan": scan}
    found = [[str(job_id)] for (job_id,) in tx.all("archive_page", before=before, **where)]
    last, seen = tx.one("jobs_oldest_end", **where) or (0, 0)
    return found, int(last) if seen == scan else None


def forget_history(tx: Tx, scope: Scope, job_ids: Sequence[str], *, before: Micros) -> int:
    """Replace events, grants and effects of archived jobs by one summary each. Return how many jobs there were."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    rows = tx.all("archive_rows", job_ids=encoded(list(job_ids)), before=before, **scope._asdict())
    names = [(*scope, job_id) for (job_id,) in rows]
    tx.send("archive_summary", [(tx.now, *name) for name in names])
    failpoints.hit("purge.history")
    for statement in ("archive_events", "archive_effects", "archive_grants"):
        tx.send(statement, names)
    return len(names)
