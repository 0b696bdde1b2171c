"""Repair the ledger's own rows: leases, intents, lanes and counters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from longshore.domain.kinds import EXTERNAL
from longshore.ledger.operations.effects import cleanup_stale_ops
from longshore.ledger.operations.make_claimable import cleanup_stale_leases, mark_lanes
from longshore.ledger.operations.planning import add_counts
from longshore.ledger.rows import encoded
from longshore.ledger.transaction import Tx


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
    jobs = tx.all("jobs_forgotten", external=encoded(EXTERNAL), many=10_000)
    tx.send("job_ready", [(seq,) for seq, _, _ in jobs])
    mark_lanes(tx, ((lane, priority) for _, lane, priority in jobs))
    if tx.dialect == "postgres":
        tx.run("commits_forget")
    lanes = tx.all("lanes_forgotten")
    mark_lanes(tx, lanes)
    return Healed(expired, stale, len(jobs), len(lanes), _recount(tx))


def _recount(tx: Tx) -> int:
    wrong = Counter({(tenant, project, status): int(n) for tenant, project, status, n in tx.all("count_wrong")})
    add_counts(tx, wrong)
    return len(wrong)
