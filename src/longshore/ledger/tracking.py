"""Torrent jobs as they are read: records, the rotation, lists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from longshore.domain.model import Micros, Scope, Status
from longshore.domain.torrent_sync import Watch
from longshore.domain.torrents import Clock, Identity
from longshore.errors import NotFound
from longshore.ledger.rows import by_tenant, encoded
from longshore.ledger.tx import Row, Tx

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
    watch: Watch
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
    """Give the next jobs of the rotation, the longest unpolled first."""
    names = [(Scope(row[0], row[1]), row[2]) for row in tx.all("torrents_due", now=tx.now, limit=limit)]
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
    row = tx.one("torrents_active")
    return int(row[0]) if row else 0


def sharing(tx: Tx, identity: Identity, job_ids: Sequence[str]) -> dict[str, tuple[Status, bool]]:
    """Give every job that uses a torrent or that its tags name: its status, and whether it is to be canceled."""
    rows = tx.all(
        "torrents_sharing", infohash_v1=identity.v1, infohash_v2=identity.v2, job_ids=encoded(sorted(job_ids))
    )
    return {row[0]: (Status(row[1]), row[2] is not None) for row in rows}


def torrent(tx: Tx, scope: Scope, job_id: str) -> Tracked:
    """Show one torrent job."""
    tx.enter(scope.tenant_id)
    row = tx.one("torrent_show", **named(scope, job_id))
    if row is None:
        raise NotFound(f"there is no torrent job {job_id} here")
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
    """Give the .torrent file of a job, if it came as one."""
    tx.enter(scope.tenant_id)
    row = tx.one("torrent_metainfo", **named(scope, job_id))
    return bytes(row[0]) if row and row[0] is not None else None


def named(scope: Scope, job_id: str) -> dict[str, Any]:
    """Give the parameters that name one job."""
    return {"tenant_id": scope.tenant_id, "project_id": scope.project_id, "job_id": job_id}


def watch_text(watch: Watch) -> str:
    """Write what the loop remembers."""
    return encoded({name: value for name, value in asdict(watch).items() if value not in (None, "", 0, False)})


def _watch(text: str) -> Watch:
    known = json.loads(text)
    for name in _CLOCKS:
        if name in known:
            known[name] = Clock(**known[name])
    return Watch(**known)


def tracked(row: Row) -> Tracked:
    """Make a record of the columns {tracked}."""
    return Tracked(
        scope=Scope(row[0], row[1]),
        job_id=row[2],
        status=Status(row[3]),
        stage=row[4],
        row_version=row[5],
        user_id=row[6],
        book_id=row[7],
        media_type=row[8],
        source=row[9],
        external_job_id=row[10],
        identity=Identity(row[11], row[12]),
        watch=_watch(row[13]),
        held=row[14] is not None,
        cancel_requested_at=row[15],
        created_at=row[16],
        updated_at=row[17],
        completed_at=row[18],
        first_not_found_at=row[19],
        failure_reason=row[20],
        message=row[21],
        progress=row[22],
        lease_until=row[23],
        released_at=row[24],
    )
