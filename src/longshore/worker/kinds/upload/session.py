"""One upload, step by step: from the command line, from Python, from the API.

The key of the job is the content key, so the bytes come first: they are staged under a private name, and only then is the
job planned. A crash in between leaves a part that belongs to no job, which reconcile removes; a crash
after it leaves a job that the repeated upload finds by its key and finishes. If the upload is not repeated, reconcile ends
the job (`recovery.py`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from longshore import failpoints
from longshore.domain.identity.keys import check_text, content_key
from longshore.domain.kinds import UPLOAD, Status
from longshore.domain.model import Artifact, Blob, JobRequest, Lease, NewArtifact, Planned, Scope
from longshore.domain.outcomes import Completed, Deferred
from longshore.domain.transfer.content_checks import sniff
from longshore.errors import Conflict, LongshoreError, Reasoned, StoreError
from longshore.ledger.operations.stages import report
from longshore.store import Staged
from longshore.worker.kinds.custom.job_types import Result, checked
from longshore.worker.publish_protocol import publish_now

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Store

_TTL_S: Final = 600.0
_POLL_S: Final = 0.1
_LARGE: Final = 8 << 20  # publishing these takes a while: until then other processes see the size
failpoints.declare("put.staged", "put.planned", "put.linked", "put.settled")


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """What the sender says about the bytes."""

    name: str | None = None
    artifact_type: str = "raw_upload"
    content_type: str | None = None  # None: told by the bytes
    work_id: str | None = None
    sha256: str | None = None  # refused if the bytes are others
    request_id: str | None = None
    run_id: str | None = None
    schema_version: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)  # ignored if these bytes are stored already


@dataclass(frozen=True, slots=True)
class Uploader:
    """The lease owner of an upload, and the callback that returns dead owners."""

    owner: str
    dead: Callable[[], Collection[str]] = tuple
    patience_s: float = _TTL_S  # how long to wait for another upload of the same bytes


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The result of an upload."""

    job_id: str
    artifact: Artifact
    held: bool = False  # these bytes were uploaded before


class UploadSession:
    """One upload. Blocks; run it in a thread. Write the bytes, then finish; discard in any case."""

    def __init__(
        self, ledger: Ledger, store: Store, scope: Scope, meant: UploadRequest, worker: Uploader, *, size_bytes: int = 0
    ) -> None:
        meant = _checked(meant)
        self._ledger, self._store, self._scope, self._worker = ledger, store, scope, worker
        self._meant, self._token = meant, f"upload-{uuid.uuid4().hex}"
        self._part = store.part(scope, self._token, 1)
        try:
            self._part.begin(url="upload:")
            self._part.reservation = store.reserve(scope, size_bytes)  # given back with the part
        except BaseException:
            self.discard()
            raise

    def write(self, piece: bytes) -> None:
        """Take some bytes."""
        self._part.write(piece)

    def discard(self) -> None:
        """Delete the staged bytes."""
        self._part.discard()
        self._store.drop_part(self._part.facts)

    def finish(self) -> Uploaded:
        """Plan, publish, register."""
        failpoints.hit("put.staged")
        sha256 = self._part.sha256
        if self._meant.sha256 is not None and sha256 != self._meant.sha256:
            raise Reasoned("digest_mismatch", f"the bytes have the SHA-256 {sha256}, not the expected one")
        planned, artifact = self._plan(sha256)
        failpoints.hit("put.planned")
        if artifact is not None:
            return Uploaded(planned.job_id, artifact, held=True)
        lease = self._lease(planned)
        if lease is not None:
            return self._publish(lease)
        artifact = self._artifact(planned.job_id)
        if artifact is None:
            raise StoreError("the bytes of an upload that was just completed are gone", hint="try again")
        return Uploaded(planned.job_id, artifact, held=True)

    def _plan(self, sha256: str) -> tuple[Planned, Artifact | None]:
        """Plan the job; return the artifact if a job with the same bytes has completed."""
        meant = self._meant
        key = content_key(self._scope.tenant_id, self._scope.project_id, UPLOAD, [sha256])
        request = JobRequest(
            UPLOAD,
            key,
            work_id=meant.work_id,
            name=meant.name,
            run_id=meant.run_id,
            request_id=meant.request_id,
        )
        (planned,) = self._ledger.plan(self._scope, [request], again="failed")
        if planned.status is not Status.COMPLETED:
            return planned, None
        artifact = self._artifact(planned.job_id)
        if artifact is None:  # its bytes are lost or damaged: these replace them
            (planned,) = self._ledger.plan(self._scope, [request], again="always")
        return planned, artifact

    def _artifact(self, job_id: str) -> Artifact | None:
        """Find a result whose stored bytes are proven: the bytes at hand are thrown away for it."""
        for artifact in self._ledger.results(self._scope, job_id):
            blob = self._store.stat(self._scope, artifact.sha256)
            if artifact.availability != "available" or blob is None:
                continue
            if self._store.prove(blob, self._scope, "upload", unreadable_too=True):
                return artifact
            self._ledger.mark_missing(self._scope, [artifact.artifact_id])
        return None

    def _lease(self, planned: Planned) -> Lease | None:
        """Lease the job; None if another upload of the same bytes has completed it meanwhile."""
        end = time.monotonic() + self._worker.patience_s
        owner, scope, ids = self._worker.owner, self._scope, [planned.job_id]
        while True:
            if leases := self._ledger.claim(owner, limit=1, ttl_s=_TTL_S, job_types=[UPLOAD], scope=scope, job_ids=ids):
                return leases[0]
            if self._ledger.job(self._scope, planned.job_id).status is Status.COMPLETED:
                return None
            if time.monotonic() >= end:
                told = "another upload of the same bytes is in progress"
                raise Conflict(told, job_id=planned.job_id, hint="wait for that job, or try again")
            if not self._ledger.release_dead(list(self._worker.dead())):
                time.sleep(_POLL_S)

    def _publish(self, lease: Lease) -> Uploaded:
        part, meant = self._part, self._meant
        kind = meant.content_type or sniff(part.read_back(0, min(part.size_bytes, 1024))).media_type
        if part.size_bytes >= _LARGE:
            self._ledger.write(report, [(lease, part.size_bytes, part.size_bytes)])
        item = Staged(self._scope, self._token, 1, part.sha256, part.size_bytes, kind, part)
        try:
            blob = self._linked(lease, item)
        except StoreError as error:
            self._ledger.settle([(lease, Deferred("disk_error", str(error), 0.0, counts=False))])
            raise
        failpoints.hit("put.linked")
        made = NewArtifact(
            blob, meant.artifact_type, name=meant.name, schema_version=meant.schema_version, metadata=meant.metadata
        )
        (settled,) = self._ledger.settle([(lease, Completed((made,), facts={"size_bytes": blob.size_bytes}))])
        failpoints.hit("put.settled")
        if isinstance(settled, LongshoreError):
            raise settled
        self._store.clean([item])
        (artifact,) = self._ledger.results(self._scope, lease.job_id)
        return Uploaded(lease.job_id, artifact)

    def _linked(self, lease: Lease, item: Staged) -> Blob:
        return publish_now(self._ledger, self._store, lease, item, {"artifact_type": self._meant.artifact_type})


def _checked(meant: UploadRequest) -> UploadRequest:
    """Refuse what could not be stored, before any byte is read."""
    if meant.name is not None:
        check_text("name", meant.name, limit=1024)
    for name, value in (("run_id", meant.run_id), ("request_id", meant.request_id)):
        if value is not None:
            check_text(name, value, limit=1024)
    described = Result(b"", meant.artifact_type, schema_version=meant.schema_version, metadata=meant.metadata)
    return replace(meant, metadata=checked(described).metadata)
