"""Operations on torrent jobs. A job has no lease while the client works: each write names the row_version it read.

An operation that lost the race changes nothing and reports it; the next poll reads the winner's row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from longshore.domain.identity.keys import op_key
from longshore.domain.kinds import TORRENT, check_move, kind_of
from longshore.domain.model import SECOND, Job, JobRequest, Lease, NewArtifact, Planned, Scope, Status
from longshore.domain.outcomes import Completed
from longshore.domain.policy.redaction import safe_text
from longshore.domain.torrents.model import DOWNLOADING, NOBODY, QUEUED, Identity, TorrentRequest
from longshore.domain.torrents.sync_rules import PollState, progress_of
from longshore.errors import Conflict, LeaseLost, LongshoreError, NotFound
from longshore.ledger.operations.book_assets import recompute_book
from longshore.ledger.operations.effects import confirm
from longshore.ledger.operations.failed_releases import check_release, release_failed, release_succeeded, releases_of
from longshore.ledger.operations.failure_log import logged
from longshore.ledger.operations.planning import add_counts, plan
from longshore.ledger.operations.settling import settle
from longshore.ledger.queries.torrents import Tracked, named, torrent, tracked, watch_text
from longshore.ledger.records import Settled
from longshore.ledger.rows import by_tenant, check_scope, encoded, job_of
from longshore.ledger.transaction import Tx

FINALIZE: Final = "FINALIZE"
INTERRUPTED: Final = "interrupted"


@dataclass(frozen=True, slots=True)
class Noted:
    """What one poll of one job wants to write."""

    job: Tracked
    watch: PollState
    stage: str
    external_job_id: str | None = None
    identity: Identity = NOBODY
    metainfo: bytes | None = None
    reason: str | None = None  # set: the job fails
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """What a start came to."""

    job_id: str
    created: bool
    status: Status
    stage: str


def start_torrent(tx: Tx, request: TorrentRequest) -> Started:
    """Make the one active job of a user, book and medium; the same request again is the same job."""
    scope = check_scope(request.scope)
    tx.enter(scope.tenant_id)
    active = _active(tx, request)
    if active is None:
        check_release(tx, request)
        wanted = JobRequest(
            TORRENT,
            None,
            request_id=request.request_id,
            user_id=request.user_id,
            book_id=request.book_id,
            media_type=request.media_type,
            source=request.source,
        )
        try:
            return _started(tx, request, plan(tx, scope, [wanted])[0])
        except Conflict:
            active = _active(tx, request)  # another transaction committed between our two queries
            if active is None:
                raise
    if active.scope == scope and (active.source == request.source or active.identity.overlaps(request.identity)):
        return Started(active.job_id, False, active.status, active.stage)
    if active.scope != scope:  # one place per tenant, but what another project does is not for telling
        raise Conflict(f"another project already downloads this {request.media_type} of book {request.book_id}")
    raise Conflict(
        f"job {active.job_id} already downloads this {request.media_type} of book {request.book_id} from another source",
        job_id=active.job_id,
        hint=f"`longshore torrent cancel {active.job_id}` first, or wait for it",
    )


def _active(tx: Tx, request: TorrentRequest) -> Tracked | None:
    row = tx.one(
        "torrent_active",
        tenant_id=request.scope.tenant_id,
        user_id=request.user_id,
        book_id=request.book_id,
        media_type=request.media_type,
    )
    return tracked(row) if row is not None else None


def _started(tx: Tx, request: TorrentRequest, planned: Planned) -> Started:
    scope, identity = request.scope, request.identity
    known = {"infohash_v1": identity.v1, "infohash_v2": identity.v2, "metainfo": request.metainfo}
    tx.run("torrent_identity", **named(scope, planned.job_id), **known)
    tx.run("book_known", tenant_id=scope.tenant_id, project_id=scope.project_id, book_id=request.book_id, now=tx.now)
    return Started(planned.job_id, True, planned.status, planned.stage)


def hold_torrents(tx: Tx) -> None:
    """Stop all clocks until the client answers again."""
    tx.run("torrents_hold", now=tx.now)


def note_torrents(tx: Tx, notes: Sequence[Noted], polled: Sequence[Tracked] = ()) -> list[bool]:
    """Write a cycle's findings, each job separately; return False for each job that another process changed first.

    The jobs in `polled` move to the end of the rotation in any case.
    """
    for tenant, group in by_tenant(polled, lambda job: job.scope):
        tx.enter(tenant)
        tx.send("torrent_polled", [(tx.now, *job.scope, job.job_id) for _, job in group])
    return [_note(tx, note) for note in notes]


def _note(tx: Tx, note: Noted) -> bool:
    job, watch = note.job, note.watch
    tx.enter(job.scope.tenant_id)
    name = named(job.scope, job.job_id)
    _end_expired(tx, job)
    missing = watch.missing.since if watch.missing is not None else None
    if note.reason is not None:
        message = safe_text(note.message or "", 2_000)
        check_move(TORRENT, job.job_id, job.stage, "failed")
        won = tx.run(
            "torrent_fail",
            **name,
            row_version=job.row_version,
            now=tx.now,
            reason=note.reason,
            message=message,
            debug_id=logged(job.job_id, job.row_version, note.reason, message),
            first_not_found_at=missing,
        )
        if won:
            tx.run("torrent_retire", **name, watch=watch_text(watch))
            _moved(tx, job, "failed", {"reason": note.reason, "message": message})
            releases = releases_of(job.source, job.identity, note.identity)
            release_failed(tx, job.scope, (job.book_id, job.media_type), releases, job.job_id, note.reason, message)
        return bool(won)
    if note.stage != job.stage:
        check_move(TORRENT, job.job_id, job.stage, note.stage)
    won = tx.run(
        "torrent_note",
        **name,
        row_version=job.row_version,
        now=tx.now,
        status=kind_of(TORRENT).stages[note.stage].value,
        stage=note.stage,
        progress=progress_of(watch),
        bytes_done=watch.done_bytes,
        bytes_total=watch.size_bytes or None,
        external_job_id=note.external_job_id,
        first_not_found_at=missing,
    )
    if not won:
        return False
    known = {"infohash_v1": note.identity.v1, "infohash_v2": note.identity.v2, "metainfo": note.metainfo}
    tx.run("torrent_note_beside", **name, watch=watch_text(watch), now=tx.now, **known)
    if note.stage != job.stage:
        _moved(tx, job, note.stage, {"state": watch.state})
    return True


def lease_import(tx: Tx, job: Tracked, owner: str, ttl_s: float) -> Lease | None:
    """Lease a finished torrent for import; None if another worker has it or its cancellation was requested."""
    tx.enter(job.scope.tenant_id)
    name = named(job.scope, job.job_id)
    _end_expired(tx, job)
    until = tx.now + int(ttl_s * SECOND)
    row = tx.one("torrent_lease", **name, row_version=job.row_version, now=tx.now, owner=owner, until=until)
    if row is None:
        return None
    (epoch,) = row
    tx.send("claim_insert", [(*job.scope, job.job_id, epoch, owner, "", tx.now)])
    return Lease(job.scope, job.job_id, epoch, owner, until, _job(tx, job.scope, job.job_id))


def _end_expired(tx: Tx, job: Tracked) -> None:
    """An import whose process died: its lease ends here, by the clock of the ledger."""
    if job.lease_until is None:
        return
    name = named(job.scope, job.job_id)
    row = tx.one("torrent_lease_expired", **name, row_version=job.row_version, now=tx.now)
    if row is not None:
        (epoch,) = row
        _claim_over(tx, job.scope, job.job_id, epoch, "expired", None)


def release_import(tx: Tx, lease: Lease, watch: PollState, reason: str) -> bool:
    """Release the import lease without a result: the job stays downloading and the next cycle tries again."""
    tx.enter(lease.scope.tenant_id)
    name = named(lease.scope, lease.job_id)
    if reason != INTERRUPTED:
        _begin(tx, lease, watch)
    if not tx.run("torrent_lease_back", **name, epoch=lease.epoch, owner=lease.owner, now=tx.now):
        return False
    tx.run("torrent_watch", **name, watch=watch_text(watch))
    _claim_over(tx, lease.scope, lease.job_id, lease.epoch, "released", reason)
    return True


def complete_torrent(
    tx: Tx, lease: Lease, artifacts: Sequence[NewArtifact], *, main: int, storage_path: str, watch: PollState
) -> Settled:
    """In one transaction: artifacts registered, asset available, book recomputed, job completed.

    A torrent that was faster than the polls begins in this transaction too: two moves, never a jump.
    """
    tx.enter(lease.scope.tenant_id)
    request = lease.job.request
    if _job(tx, lease.scope, lease.job_id).cancel_requested_at is not None:
        raise LeaseLost(f"job {lease.job_id} is to be canceled")
    _begin(tx, lease, watch)
    for sha256, size_bytes in sorted({(new.blob.sha256, new.blob.size_bytes) for new in artifacts}):
        confirm(tx, lease, op_key(FINALIZE, lease.job_id, sha256=sha256), {"sha256": sha256, "size": size_bytes})
    settled = settle(tx, [(lease, Completed(tuple(artifacts)))])[0]
    if isinstance(settled, LongshoreError):
        raise settled
    tx.enter(lease.scope.tenant_id)
    where = {"tenant_id": lease.scope.tenant_id, "project_id": lease.scope.project_id, "book_id": request.book_id}
    tx.run("book_known", **where, now=tx.now)
    tx.run(
        "asset_available",
        **where,
        media_type=request.media_type,
        storage_path=storage_path,
        source_url=request.source,
        artifact_id=settled.artifact_ids[main],
        job_id=lease.job_id,
        now=tx.now,
    )
    recompute_book(tx, lease.scope, str(request.book_id))
    known = torrent(tx, lease.scope, lease.job_id)
    releases = releases_of(known.source, known.identity)
    release_succeeded(tx, lease.scope, (known.book_id, known.media_type), releases)
    tx.run("torrent_retire", **named(lease.scope, lease.job_id), watch=watch_text(watch))
    return settled


def _begin(tx: Tx, lease: Lease, watch: PollState) -> None:
    """Move a job that was never seen downloading to that stage, under its lease."""
    if lease.job.stage != QUEUED:
        return
    if tx.run("torrent_begin", **named(lease.scope, lease.job_id), epoch=lease.epoch, owner=lease.owner, now=tx.now):
        _moved(tx, lease.job, DOWNLOADING, {"state": watch.state, "why": "finished between two polls"})


def want_cancel(tx: Tx, scope: Scope, job_id: str, *, with_files: bool = False) -> Tracked:
    """Write down that a job is to be canceled; it is canceled when the client has confirmed."""
    tx.enter(scope.tenant_id)
    job = torrent(tx, scope, job_id)
    if not tx.run("torrent_cancel_wanted", **named(scope, job_id), now=tx.now):
        return job
    if with_files and not job.watch.cancel_files:
        tx.run("torrent_watch", **named(scope, job_id), watch=watch_text(replace(job.watch, cancel_files=True)))
    _event(tx, scope, job_id, "cancel_requested", {"with_files": with_files})
    return torrent(tx, scope, job_id)


def cancel_confirmed(tx: Tx, job: Tracked) -> bool:
    """The client's side is done: cancel the job, unless its completion was faster."""
    tx.enter(job.scope.tenant_id)
    name = named(job.scope, job.job_id)
    current = torrent(tx, job.scope, job.job_id)
    row = tx.one("torrent_cancel", **name, now=tx.now)
    tx.run("torrent_released", **name, now=tx.now)
    if row is None:
        return current.status is Status.CANCELED
    (epoch,) = row
    _claim_over(tx, job.scope, job.job_id, epoch, "canceled", "canceled")
    _moved(tx, current, "canceled", {})
    return True


def retire_torrent(tx: Tx, job: Tracked) -> None:
    """Stop polling a job that ended elsewhere."""
    tx.enter(job.scope.tenant_id)
    tx.run("torrent_retire", **named(job.scope, job.job_id), watch=watch_text(job.watch))


def _job(tx: Tx, scope: Scope, job_id: str) -> Job:
    row = tx.one("torrent_job", **named(scope, job_id))
    if row is None:
        raise NotFound(f"torrent job {job_id} not found")
    return job_of(row)


def _moved(tx: Tx, job: Tracked | Job, stage: str, facts: dict[str, Any]) -> None:
    """Write a move into history and the counters."""
    _event(tx, job.scope, job.job_id, stage, {"from": job.stage, **facts})
    before, after = job.status, kind_of(TORRENT).stages[stage]
    if before is not after:
        add_counts(tx, Counter({(*job.scope, before.value): -1, (*job.scope, after.value): 1}))


def _event(tx: Tx, scope: Scope, job_id: str, kind: str, facts: dict[str, Any]) -> None:
    tx.send("event_insert", [(*scope, job_id, kind, tx.now, encoded(facts))])


def _claim_over(tx: Tx, scope: Scope, job_id: str, epoch: int, outcome: str, reason: str | None) -> None:
    tx.send("claim_end", [(tx.now, outcome, reason, *scope, job_id, epoch)])
