"""What a kind of job writes beside the general tables, in the transaction that plans the job or marks its artifacts.

Planning and the registry call these hooks; they know nothing of torrents and books. What completes a torrent is
`torrents.complete_torrent`, which calls `settle` in its own transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from longshore.domain.kinds import TORRENT
from longshore.domain.model import JobRequest, Scope
from longshore.errors import BadInput, Conflict
from longshore.ledger.operations.book_assets import mark_assets
from longshore.ledger.transaction import Tx


@dataclass(frozen=True, slots=True)
class KindHooks:
    """The hooks of one kind."""

    check: Callable[[Tx, Scope, JobRequest], None]  # before a job is planned; raises if it must not be
    planned: Callable[[Tx, Scope, Sequence[tuple[str, str | None]]], None]  # new jobs, each with the job it repeats
    availability_changed: Callable[[Tx, Scope, Sequence[str]], None]  # of artifacts: missing, or available again


def _check_torrent(tx: Tx, scope: Scope, request: JobRequest) -> None:
    if not (request.user_id and request.book_id and request.media_type):
        raise BadInput("a torrent needs user_id, book_id and media_type")
    active = tx.one(
        "plan_active_torrent",
        tenant_id=scope.tenant_id,
        user_id=request.user_id,
        book_id=request.book_id,
        media_type=request.media_type,
    )
    if active is not None:
        (job_id,) = active
        raise Conflict(
            f"job {job_id} already downloads this {request.media_type} of book {request.book_id}",
            job_id=job_id,
            hint="cancel it first, or ask for the same source again",
        )


def _plan_torrents(tx: Tx, scope: Scope, jobs: Sequence[tuple[str, str | None]]) -> None:
    tx.send("torrent_beside", [(*scope, job_id, retry_of) for job_id, retry_of in jobs])


HOOKS: Final = {TORRENT: KindHooks(_check_torrent, _plan_torrents, mark_assets)}
