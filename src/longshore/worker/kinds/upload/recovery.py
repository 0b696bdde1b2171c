"""End uploads whose process died after planning, because no worker runs jobs of this kind.

If the bytes were published (the FINALIZE intent names them and the blob proves to be intact), the job completes. Otherwise
the bytes died with the process: the job fails as `interrupted`, and an unproven blob is no longer referenced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from longshore.domain.kinds import UPLOAD, Status
from longshore.domain.model import SECOND, Blob, Lease, NewArtifact, Scope
from longshore.domain.outcomes import Completed, Failed, Outcome
from longshore.errors import LongshoreError
from longshore.ledger.operations.effects import unfinished
from longshore.ledger.queries.listing import JobFilter
from longshore.worker.publish_protocol import FINALIZE

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Store

_TTL_S: Final = 600.0
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class EndedUpload:
    """An interrupted upload, and whether its bytes were saved."""

    job_id: str
    completed: bool


def interrupted(ledger: Ledger, scope: Scope, older_than_s: float) -> list[str]:
    """Return the unfinished uploads that nothing has changed for `older_than_s`, by the ledger's clock."""
    wanted = JobFilter(statuses=(Status.PENDING, Status.PROCESSING), job_type=UPLOAD, oldest_first=True)
    page = ledger.jobs(scope, wanted, limit=_BATCH)
    before = ledger.now() - int(older_than_s * SECOND)
    return [job.job_id for job in page.items if job.updated_at <= before]


def end_interrupted(ledger: Ledger, store: Store, scope: Scope, job_ids: list[str], owner: str) -> list[EndedUpload]:
    """Complete or fail these uploads; those that another process holds are left alone."""
    leases = ledger.claim(owner, limit=len(job_ids), ttl_s=_TTL_S, job_types=[UPLOAD], scope=scope, job_ids=job_ids)
    outcomes = [(lease, _outcome(ledger, store, lease)) for lease in leases]
    return [
        EndedUpload(lease.job_id, isinstance(outcome, Completed))
        for (lease, outcome), settled in zip(outcomes, ledger.settle(outcomes), strict=True)
        if not isinstance(settled, LongshoreError)
    ]


def _outcome(ledger: Ledger, store: Store, lease: Lease) -> Outcome:
    for effect in ledger.read(unfinished, lease.scope, lease.job_id):
        if effect.kind == FINALIZE and (blob := _proven(store, lease.scope, str(effect.request.get("sha256")))):
            kind = str(effect.request.get("artifact_type") or "raw_upload")
            made = NewArtifact(blob, kind, name=lease.job.request.name)
            return Completed((made,), facts={"size_bytes": blob.size_bytes, "adopted": True})
    return Failed("interrupted", "the upload was interrupted before its bytes were stored")


def _proven(store: Store, scope: Scope, sha256: str) -> Blob | None:
    blob = store.stat(scope, sha256)
    return blob if blob is not None and store.prove(blob, scope, "interrupted upload", unreadable_too=True) else None
