"""The fence: every write after a claim begins with the row of a job whose lease is ours and lives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from longshore.domain.model import Lease
from longshore.errors import LeaseLost
from longshore.ledger import process_metrics
from longshore.ledger.named_rows import FencedRow
from longshore.ledger.rows import check_lease, fence_rows
from longshore.ledger.transaction import Row, Tx


class FencedJob:
    """The rows of the leases that hold, each to be taken by its own lease only: job and epoch."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = {(row.job_id, row.lease_epoch): row for row in map(FencedRow._make, rows)}

    def get(self, lease: Lease) -> FencedRow | None:
        """Return the row of a lease; None when the lease is lost."""
        return self._rows.get((lease.job_id, lease.epoch))

    def put(self, row: FencedRow) -> None:
        """Remember what was written meanwhile."""
        self._rows[row.job_id, row.lease_epoch] = row

    def take(self, lease: Lease) -> FencedRow | None:
        """Remove and return the row of a lease that ends now: a second end finds None."""
        return self._rows.pop((lease.job_id, lease.epoch), None)


def fence(tx: Tx, leases: Sequence[Lease]) -> FencedJob:
    """Return the rows of the leases (of one tenant) that still hold."""
    for lease in leases:
        check_lease(lease)
    return FencedJob(tx.many("fence", fence_rows(leases, tx.now)))


def lost(lease: Lease) -> LeaseLost:
    """Return which lease is lost."""
    process_metrics.LEASE_EVENTS["fenced"] += 1
    return LeaseLost(
        f"the lease of job {lease.job_id} (epoch {lease.epoch}) is lost; nothing was written",
        hint="stop working on it: another worker has it, or the job is over",
    )
