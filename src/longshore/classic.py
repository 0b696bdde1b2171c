"""The classic job modules: the verbs of `longshore.compat` with a connection or a path in the place of the ledger.

Earlier programs drove a SQLite file by hand: plan, lease, advance, run effects, release, each call with the connection, a job
id and an owner. These functions have the same names and arguments. The file is a Longshore ledger; beside it lies the store.

What the arguments do not carry is remembered per file in this process: the leases that were granted here, and the bytes that
FINALIZE named. A lease that was lost answers as the earlier functions did: False, or a RuntimeError.

The two ends are supported as moves: INDEXED and DEDUPED register the bytes of the confirmed FINALIZE and complete the job,
FAILED ends it. Both end the lease, so `release_lease` in a `finally` finds nothing to release and returns False.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from longshore import compat
from longshore.domain.identity.keys import op_key
from longshore.domain.kinds import DOWNLOAD, kind_of
from longshore.domain.model import SECOND, Blob, Lease, NewArtifact, Scope
from longshore.domain.transfer.content_checks import JUDGE_BYTES, content_type
from longshore.errors import BadInput, InvalidTransition, LeaseLost, LongshoreError, NoDepot
from longshore.ledger import Ledger, migrate
from longshore.ledger.operations.ledger_identity import make_ledger_id
from longshore.ledger.operations.repair import Healed
from longshore.store import Staged, Store, open_store

FINALIZE: Final = "FINALIZE"
HOME: Final = Scope("default", "default")


class Connection(Protocol):
    """A connection of `sqlite3` or `apsw`."""

    def execute(self, text: str, /) -> Any:
        """Run a statement."""


Place = str | os.PathLike[str] | Connection


@dataclass(slots=True)
class Session:
    """One file, opened by this process."""

    ledger: Ledger
    store: Store
    leases: dict[str, Lease] = field(default_factory=dict)  # by job


_sessions: dict[tuple[int, str], Session] = {}
_lock: Final = threading.Lock()


def open_session(place: Place) -> Session:
    """Return the session of a file; open its ledger and its store the first time."""
    path = _path(place)
    name = os.getpid(), os.path.realpath(path)
    with _lock:
        if name not in _sessions:
            if not path.exists() or path.stat().st_size == 0:
                raise NoDepot(f"no ledger found at {path}", hint="call apply_migration first")
            ledger = Ledger.open(path)
            _sessions[name] = Session(ledger, open_store(path.parent / "store", ledger_id=ledger.write(make_ledger_id)))
        return _sessions[name]


def close(place: Place) -> None:
    """Close what `open_session` opened for a file."""
    with _lock:
        session = _sessions.pop((os.getpid(), os.path.realpath(_path(place))), None)
    if session is not None:
        session.store.close()
        session.ledger.close()


def _path(place: Place) -> Path:
    """Return the file of a connection, or the path itself."""
    if isinstance(place, (str, os.PathLike)):
        return Path(place)
    files = [str(row[2]) for row in place.execute("PRAGMA database_list") if row[1] == "main"]
    if not files or not files[0]:
        raise BadInput("the connection has no file: a ledger in memory could not be shared, or survive anything")
    return Path(files[0])


def apply_migration(place: Place) -> None:
    """Make the ledger in a new or empty file, or bring an existing one up to date."""
    path = _path(place)
    if not path.exists() or path.stat().st_size == 0:
        migrate.fill_sqlite(path)
    else:
        Ledger.apply_migration(path)


def plan_job_if_absent(place: Place, *, work_id: str, artifact_id: str, canonical_url: str) -> str:
    """Plan one download by its v1 key and return the job's id; the same again is the same job."""
    named = {"work_id": work_id, "artifact_id": artifact_id, "canonical_url": canonical_url}
    return compat.plan_job_if_absent(open_session(place).ledger, HOME, **named)


def lease_next_job(
    place: Place, *, owner: str, ttl_s: float = 120, from_states: Sequence[str] = ("PLANNED",)
) -> dict[str, Any] | None:
    """Claim one download and return its row; None if none is claimable.

    `from_states` may name FAILED, and nothing leaves FAILED: doing such a job again is `longshore retry`.
    """
    session = open_session(place)
    if "PLANNED" not in from_states:
        return None
    leases = session.ledger.claim(owner, limit=1, ttl_s=ttl_s, job_types=[DOWNLOAD], scope=HOME)
    if not leases:
        return None
    session.leases[leases[0].job_id] = leases[0]
    return _row(leases[0])


def _row(lease: Lease) -> dict[str, Any]:
    """Return a leased job with the columns of the earlier table; times are seconds."""
    job, request = lease.job, lease.job.request
    return {
        "job_id": job.job_id,
        "work_id": request.work_id,
        "artifact_id": request.source_ref,
        "canonical_url": request.canonical_url,
        "state": job.stage,
        "lease_owner": lease.owner,
        "lease_until": lease.until / SECOND,
        "created_at": job.created_at / SECOND,
        "updated_at": job.updated_at / SECOND,
        "idempotency_key": request.key,
    }


def _lease(session: Session, job_id: str, owner: str | None = None) -> Lease:
    lease = session.leases.get(job_id)
    if lease is None or (owner is not None and lease.owner != owner):
        raise LeaseLost(f"job {job_id} is not leased here" + (f" by {owner}" if owner else ""))
    return lease


def renew_lease(place: Place, *, job_id: str, owner: str, ttl_s: float = 120) -> bool:
    """Renew a lease; return False if this owner does not hold it any more."""
    session = open_session(place)
    try:
        compat.renew_lease(session.ledger, _lease(session, job_id, owner), ttl_s)
    except LeaseLost:
        return False
    return True


def release_lease(place: Place, *, job_id: str, owner: str) -> bool:
    """Release a lease; return False if this owner does not hold it, for example because the job has ended."""
    session = open_session(place)
    try:
        compat.release_lease(session.ledger, _lease(session, job_id, owner))
    except LeaseLost:
        return False
    finally:
        session.leases.pop(job_id, None)
    return True


def advance_state(place: Place, *, job_id: str, to_state: str, allowed_from: Sequence[str] | None = None) -> None:
    """Move a job that was leased here; raise RuntimeError if the move is not allowed. INDEXED, DEDUPED and FAILED end it."""
    session = open_session(place)
    lease, kind = _lease(session, job_id), kind_of(DOWNLOAD)
    have = get_current_state(place, job_id=job_id)
    if to_state in (kind.done, kind.done_known, kind.failed):
        if allowed_from is not None and have not in allowed_from:
            raise InvalidTransition(
                f"job {job_id} is {have}, and {to_state} was to follow only {', '.join(allowed_from)}"
            )
        if to_state == kind.failed:
            compat.fail(session.ledger, lease, "handler_error", "the caller moved the job to FAILED")
        else:
            _complete(session, lease)
        del session.leases[job_id]
        return
    if to_state == kind.skipped:
        raise InvalidTransition(
            f"job {job_id}: a job is skipped by the result that it reuses",
            hint="compat.skip(ledger, lease, of_job_id, …)",
        )
    compat.advance_state(session.ledger, lease, to_state, allowed_from)


def get_current_state(place: Place, *, job_id: str) -> str:
    """Return the current stage of a job."""
    return compat.get_current_state(open_session(place).ledger, HOME, job_id)


def run_effect(
    place: Place, *, job_id: str, kind: str, opkey: str, effect_fn: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Run an effect of a job that was leased here, unless the ledger has its result."""
    session = open_session(place)
    return compat.run_effect(session.ledger, _lease(session, job_id), kind, opkey, effect_fn)


def get_effect_result(place: Place, opkey: str) -> dict[str, Any] | None:
    """Return the stored result of an effect; None when it is not done."""
    return compat.get_effect_result(open_session(place).ledger, HOME, opkey)


def publish_part(place: Place, *, job_id: str, part: str | os.PathLike[str]) -> dict[str, Any]:
    """Copy a finished `.part` into the store and return what FINALIZE stores: for `effect_fn` of a FINALIZE.

    The caller's file stays, and is the caller's to remove.
    """
    session = open_session(place)
    blob = _published(session, _lease(session, job_id), Path(part), None)
    path = session.store.path(HOME, blob.pointer)
    return {"code": "OK", "sha256": blob.sha256, "size": blob.size_bytes, "final_path": str(path)}


def _published(session: Session, lease: Lease, path: Path, sha256: str | None) -> Blob:
    """Publish a file; raise if it has another hash than the one given."""
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 is not None and found != sha256.lower():
            raise BadInput(f"{path} has the SHA-256 {found}, not {sha256}")
        part = session.store.part(HOME, lease.job_id, lease.epoch)
        try:
            part.take_from(file.fileno())
            kind = content_type(part.read_back(0, min(part.size_bytes, JUDGE_BYTES)), None)
            staged = Staged(HOME, lease.job_id, lease.epoch, part.sha256, part.size_bytes, kind, part)
            for answer in (*session.store.stage([staged]), *session.store.link([staged])):
                if isinstance(answer, LongshoreError):
                    raise answer
            session.store.clean([staged])
        finally:
            part.discard()
            session.store.drop_part(part.facts)
    blob = session.store.stat(HOME, found)
    if blob is None:
        raise BadInput(f"{path} changed while it was read")
    return Blob(blob.sha256, blob.size_bytes, blob.pointer, blob.backend, kind)


def _complete(session: Session, lease: Lease) -> None:
    """Register the bytes that the confirmed FINALIZE names, and complete the job."""
    results = [
        one.result
        for one in session.ledger.timeline(HOME, lease.job_id).effects
        if one.kind == FINALIZE and one.state == "confirmed" and one.result is not None
    ]
    if not results:
        raise InvalidTransition(f"job {lease.job_id} has no confirmed FINALIZE: nothing could be registered")
    compat.complete(session.ledger, lease, [NewArtifact(_blob(session, lease, results[-1]))])


def _blob(session: Session, lease: Lease, result: Mapping[str, Any]) -> Blob:
    """Return the stored bytes of a FINALIZE; take the file at its `final_path` into the store if they are not there."""
    path, sha256 = result.get("final_path"), result.get("sha256")
    if sha256 is not None and (blob := session.store.stat(HOME, str(sha256).lower())) is not None:
        with session.store.open(HOME, blob.pointer) as file:
            kind = content_type(file.read(JUDGE_BYTES), None)
        return Blob(blob.sha256, blob.size_bytes, blob.pointer, blob.backend, kind)
    if path is None:
        raise InvalidTransition(
            f"the FINALIZE of job {lease.job_id} names neither stored bytes (sha256) nor a file (final_path)",
            hint="let effect_fn return publish_part(…)",
        )
    return _published(session, lease, Path(str(path)), None if sha256 is None else str(sha256))


def reconcile_jobs(place: Place, staging_root: object = None) -> Healed:  # noqa: ARG001
    """Repair the ledger's rows. Files are compared by `longshore reconcile`; `staging_root` is the store's own business."""
    return open_session(place).ledger.reconcile_jobs()


def cleanup_stale_leases(place: Place) -> int:
    """Release every expired lease."""
    return compat.cleanup_stale_leases(open_session(place).ledger)


def cleanup_stale_ops(place: Place) -> int:
    """Close the intents of effects that no worker can finish any more."""
    return compat.cleanup_stale_ops(open_session(place).ledger)


__all__ = [
    "advance_state",
    "apply_migration",
    "cleanup_stale_leases",
    "cleanup_stale_ops",
    "close",
    "get_current_state",
    "get_effect_result",
    "lease_next_job",
    "op_key",
    "plan_job_if_absent",
    "publish_part",
    "reconcile_jobs",
    "release_lease",
    "renew_lease",
    "run_effect",
]
