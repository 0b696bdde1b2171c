"""Torrent jobs as they are read: records, the rotation, lists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from longshore.domain.model import Micros, Scope, Status
from longshore.domain.torrents.model import Clock, Identity
from longshore.domain.torrents.sync_rules import PollState
from longshore.errors import NotFound
from longshore.ledger.named_rows import TorrentRow
from longshore.ledger.rows import by_tenant, encoded
from longshore.ledger.transaction import Row, Tx

_CLOCKS: Final = ("missing", "broken", "stalled", "metadata")


@dataclass(frozen=True, slots=True)
class Tracked:
    """A torrent job as the loop and the lists see it."""

    scope: Scope
    job_id: str
    status: Status
    stage: str
    row_version: int
    user_id: str
    book_id: str
    media_type: str
    source: str
    external_job_id: str | None
    identity: Identity
    watch: PollState
    held: bool
    cancel_requested_at: Micros | None
    created_at: Micros
    updated_at: Micros
    completed_at: Micros | None
    first_not_found_at: Micros | None
    failure_reason: str | None
    message: str | None
    progress: int | None
    lease_until: Micros | None
    released_at: Micros | None


def due_torrents(tx: Tx, limit: int) -> list[Tracked]:
    """Return the next jobs of the rotation, the longest unpolled first."""
    names = [
        (Scope(tenant, project), job_id) for tenant, project, job_id in tx.all("torrents_due", now=tx.now, limit=limit)
    ]
    found: dict[tuple[Scope, str], Tracked] = {}
    for tenant, group in by_tenant(names, lambda name: name[0]):
        tx.enter(tenant)
        ids = encoded(sorted(job_id for _, (_, job_id) in group))
        for row in tx.all("torrents_named", tenant_id=tenant, job_ids=ids):
            job = tracked(row)
            found[job.scope, job.job_id] = job
    return [found[name] for name in names if name in found]


def active_torrents(tx: Tx) -> int:
    """Count the jobs that share the rotation."""
    (count,) = tx.one("torrents_active") or (0,)
    return int(count)


def sharing(tx: Tx, identity: Identity, job_ids: Sequence[str]) -> dict[str, tuple[Status, bool]]:
    """Return every job that uses a torrent or that its tags name: its status, and whether it is to be canceled."""
    rows = tx.all(
        "torrents_sharing", infohash_v1=identity.v1, infohash_v2=identity.v2, job_ids=encoded(sorted(job_ids))
    )
    return {job_id: (Status(status), cancel_at is not None) for job_id, status, cancel_at in rows}


def any_of_tenant(tx: Tx, tenant_id: str, job_ids: Sequence[str]) -> bool:
    """Return whether one of these jobs is a torrent job of a tenant."""
    tx.enter(tenant_id)
    return tx.one("torrents_of_tenant", tenant_id=tenant_id, job_ids=encoded(sorted(job_ids))) is not None


def torrent(tx: Tx, scope: Scope, job_id: str) -> Tracked:
    """Show one torrent job."""
    tx.enter(scope.tenant_id)
    row = tx.one("torrent_show", **named(scope, job_id))
    if row is None:
        raise NotFound(f"torrent job {job_id} not found")
    return tracked(row)


def torrents(
    tx: Tx, scope: Scope, *, status: Status | None = None, after: str = "", limit: int = 1000
) -> list[Tracked]:
    """List torrent jobs in the order in which they were started."""
    tx.enter(scope.tenant_id)
    where = {"tenant_id": scope.tenant_id, "project_id": scope.project_id}
    rows = tx.all("torrents_list", **where, status=status.value if status else "", after=after, limit=limit)
    return [tracked(row) for row in rows]


def metainfo(tx: Tx, scope: Scope, job_id: str) -> bytes | None:
    """Return the .torrent file of a job, if it came as one."""
    tx.enter(scope.tenant_id)
    (content,) = tx.one("torrent_metainfo", **named(scope, job_id)) or (None,)
    return bytes(content) if content is not None else None


def named(scope: Scope, job_id: str) -> dict[str, Any]:
    """Return the parameters that name one job."""
    return {"tenant_id": scope.tenant_id, "project_id": scope.project_id, "job_id": job_id}


def watch_text(watch: PollState) -> str:
    """Write what the loop remembers."""
    return encoded({name: value for name, value in asdict(watch).items() if value not in (None, "", 0, False)})


def _watch(text: str) -> PollState:
    known = json.loads(text)
    for name in _CLOCKS:
        if name in known:
            known[name] = Clock(**known[name])
    return PollState(**known)


def tracked(columns: Row) -> Tracked:
    """Make a record of the columns {tracked}."""
    row = TorrentRow._make(columns)
    return Tracked(
        scope=Scope(row.tenant_id, row.project_id),
        job_id=row.job_id,
        status=Status(row.status),
        stage=row.stage,
        row_version=row.row_version,
        user_id=row.user_id,
        book_id=row.book_id,
        media_type=row.media_type,
        source=row.source,
        external_job_id=row.external_job_id,
        identity=Identity(row.infohash_v1, row.infohash_v2),
        watch=_watch(row.watch),
        held=row.held_at is not None,
        cancel_requested_at=row.cancel_requested_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
        completed_at=row.completed_at,
        first_not_found_at=row.first_not_found_at,
        failure_reason=row.failure_reason,
        message=row.error_message_safe,
        progress=row.progress,
        lease_until=row.lease_until,
        released_at=row.released_at,
    )
