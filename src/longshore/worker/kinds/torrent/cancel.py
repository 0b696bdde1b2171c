"""Cancel torrents: remove only torrents that we added and that no other job uses; delete files only on request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from longshore import failpoints
from longshore.domain.kinds import Status
from longshore.domain.torrents.model import JOB_TAG, Seen, job_tag
from longshore.ledger.operations.torrents import cancel_confirmed
from longshore.ledger.queries.torrents import Tracked, sharing
from longshore.worker.kinds.torrent.client import Client

if TYPE_CHECKING:
    from longshore.ledger import Ledger

failpoints.declare("torrent.cancel.before", "torrent.cancel.after")
_USING = frozenset({Status.PENDING, Status.PROCESSING, Status.COMPLETED})


async def cancel_in_client(ledger: Ledger, client: Client, job: Tracked, seen: Seen | None) -> bool:
    """Do the client's side of a cancel, then the ledger's; True if the job is canceled now."""
    failpoints.hit("torrent.cancel.before")
    if seen is not None:
        await remove_from_client(ledger, client, job, seen, with_files=job.watch.cancel_files)
    failpoints.hit("torrent.cancel.after")
    return await ledger.write_async(cancel_confirmed, job)


async def remove_from_client(ledger: Ledger, client: Client, job: Tracked, seen: Seen, *, with_files: bool) -> None:
    """Remove the torrent if we added it and this was its last job; otherwise only take the job's tag from it."""
    tag = job_tag(job.job_id)
    if seen.ours and not await _used_by_others(ledger, job, seen):
        await asyncio.to_thread(client.remove, seen.id, with_files=with_files)
    elif tag in seen.tags:
        await asyncio.to_thread(client.untag, seen.id, [tag])


async def _used_by_others(ledger: Ledger, job: Tracked, seen: Seen) -> bool:
    """Return whether another job needs the torrent: of any tenant here, or of another depot (an unknown job's tag)."""
    tagged = {tag.removeprefix(JOB_TAG) for tag in seen.tags if tag.startswith(JOB_TAG)} - {job.job_id}
    known = await ledger.read_async(sharing, seen.identity, sorted(tagged))
    if tagged - known.keys():
        return True
    return any(status in _USING and not leaving for job_id, (status, leaving) in known.items() if job_id != job.job_id)
