"""The fence: every write after a claim begins with the row of a job whose lease is ours and lives."""

from __future__ import annotations

from collections.abc import Sequence

from longshore.domain.model import Lease
from longshore.errors import BadInput, LeaseLost
from longshore.ledger.records import Fenced
from longshore.ledger.tx import Tx


def fence(tx: Tx, leases: Sequence[Lease]) -> dict[str, Fenced]:
    """Give the rows, by job, of the leases (of one tenant) that still hold."""
    for lease in leases:
        if not isinstance(lease, Lease):
            raise BadInput(f"a lease is what claim gave, not {type(lease).__name__}")
    now = tx.now
    rows = [(*lease.scope, lease.job_id, lease.epoch, lease.owner, now) for lease in leases]
    return {row[0]: Fenced(*row) for row in tx.many("fence", rows)}


def lost(lease: Lease) -> LeaseLost:
    """Say which lease is lost."""
    return LeaseLost(
        f"the lease of job {lease.job_id} (epoch {lease.epoch}) is lost; nothing was written",
        hint="stop working on it: another worker has it, or the job is over",
    )
