"""Share a short queue among several processes: leases ahead in one of them would leave the others idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longshore.domain.kinds import Status
from longshore.ledger.queries.lookup import counts

if TYPE_CHECKING:
    from longshore.worker.run_types import RunOptions, WorkerContext


async def fair_share(tools: WorkerContext, options: RunOptions, places: int, held: int) -> int:
    """Return how many jobs to claim: with other processes, so many that this one holds its part, and at least its slots.

    One process alone reads nothing. Named jobs were shared by the one who named them.
    """
    at_once, workers = tools.settings.transfer.concurrency, tools.workers()
    if workers < 2 or places <= at_once or options.job_ids is not None or options.scope is None:
        return places
    waiting = (await tools.ledger.read_async(counts, options.scope))[Status.PENDING]
    return max(0, min(places, max(at_once, -(-(waiting + held) // workers)) - held))
