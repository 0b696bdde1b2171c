"""Which URLs live leases are receiving: large bodies only, by the partial index `jobs_streaming`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from longshore.domain.model import Lease
from longshore.errors import LongshoreError, Reasoned
from longshore.ledger.operations.stages import advance
from longshore.ledger.records import Move
from longshore.ledger.rows import job_of
from longshore.ledger.transaction import Tx

BUSY: Final = "url_busy"


def is_received_elsewhere(tx: Tx, lease: Lease) -> bool:
    """Return whether another live lease receives the same URL with the same headers and login."""
    mine = lease.job.request
    tx.enter(lease.scope.tenant_id)
    where = {"canonical_url": mine.canonical_url, "job_id": lease.job_id, "now": tx.now, **lease.scope._asdict()}
    for row in tx.all("url_streaming", **where):
        other = job_of(row).request
        if other.headers == mine.headers and other.login == mine.login:
            return True
    return False


def begin_streaming(tx: Tx, lease: Lease, moves: Sequence[Move], *, share: bool = True) -> list[LongshoreError | None]:
    """Move a job whose body has left memory; with `share`, refuse if another lease receives the same URL already."""
    if share and is_received_elsewhere(tx, lease):
        busy = Reasoned(BUSY, "another process is fetching this URL; its result is waited for")
        busy.blameless = True
        return [busy]
    return advance(tx, moves)
