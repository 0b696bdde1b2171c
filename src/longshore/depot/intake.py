"""Uploads: bytes that somebody hands in are hashed, published and registered like downloads.

The key is the content key of the fourth seed, so the bytes come first: they are staged under a name of their own, and
only then is the job planned. A crash in between leaves a part that belongs to no job, which reconcile removes.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from longshore import failpoints
from longshore.depot.base import Base
from longshore.depot.records import Got
from longshore.domain.keys import content_key, op_key
from longshore.domain.model import Artifact, Blob, JobRequest, Lease, NewArtifact, Planned, Scope
from longshore.domain.outcomes import Completed, Deferred
from longshore.domain.states import UPLOAD, Status
from longshore.domain.verdict import sniff
from longshore.engine.publisher import FINALIZE
from longshore.errors import BadInput, LongshoreError, StoreError
from longshore.ledger.records import Intent
from longshore.store import Part, Staged

_CHUNK: Final = 1 << 20
_TTL_S: Final = 600.0
_POLL_S: Final = 0.1
failpoints.declare("put.staged", "put.planned", "put.linked", "put.settled")


class Intake(Base):
    """Verbs that take bytes in from this machine."""

    async def put(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        *,
        name: str | None = None,
        content_type: str | None = None,
        artifact_type: str = "raw_upload",
        work_id: str | None = None,
        scope: Scope | None = None,
    ) -> Got:
        """Take one file or stream aboard; the same bytes again are the same job."""
        taking = _Taking(self, scope or self.scope, name, content_type, artifact_type, work_id)
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            with _open_plain(path) as file:
                taking.name = name or path.name
                taking.size_bytes = os.fstat(file.fileno()).st_size
                return await self._thread(taking.take, file)
        return await self._thread(taking.take, source)

    async def adopt(self, directory: str | os.PathLike[str], *, scope: Scope | None = None) -> list[Got]:
        """Hash and register every plain file below a directory; links are not followed."""
        root = Path(directory)
        found = []
        for path in await self._thread(lambda: list(plain_files(root))):
            got = await self.put(path, name=str(path.relative_to(root)), artifact_type="adopted", scope=scope)
            found.append(got)
            await asyncio.sleep(0)
        return found


def plain_files(root: Path) -> Iterator[Path]:
    """Walk the plain files below a directory in order."""
    if not root.is_dir():
        raise BadInput(f"{root} is no directory")
    for directory, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _open_plain(path: Path) -> BinaryIO:
    """Open a plain file for reading; what a name leads to is judged by the descriptor."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadInput(f"{path} is no plain file")
    return os.fdopen(descriptor, "rb", buffering=0)


class _Taking:
    """One upload, step by step. Blocks; run it in a thread."""

    def __init__(
        self,
        depot: Base,
        scope: Scope,
        name: str | None,
        content_type: str | None,
        artifact_type: str,
        work_id: str | None,
    ) -> None:
        self._depot, self._ledger, self._store = depot, depot.ledger, depot.store
        self.scope, self.name = scope, name
        self._content_type, self._artifact_type, self._work_id = content_type, artifact_type, work_id
        self.size_bytes = 0  # as far as it is known before the bytes come

    def take(self, source: BinaryIO) -> Got:
        """Stage, plan, publish, register."""
        token = f"upload-{uuid.uuid4().hex}"
        part = self._store.part(self.scope, token, 1)
        try:
            self._receive(source, part)
            failpoints.hit("put.staged")
            planned = self._plan(part.sha256)
            failpoints.hit("put.planned")
            if (held := self._held(planned)) is not None:
                return held
            lease = self._lease(planned)
            if lease is None:
                return self._got(planned.job_id, self._artifact(planned.job_id), held=True)
            return self._publish(lease, part, token)
        finally:
            part.discard()
            self._store.drop_part(part.facts)

    def _receive(self, source: BinaryIO, part: Part) -> None:
        part.begin(url="upload:")
        part.reservation = self._store.reserve(self.scope, self.size_bytes)  # given back with the part
        while piece := source.read(_CHUNK):
            part.write(piece)
        self._content_type = self._content_type or sniff(part.read_back(0, min(part.size_bytes, 1024))).media_type

    def _plan(self, sha256: str) -> Planned:
        key = content_key(self.scope.tenant_id, self.scope.project_id, UPLOAD, [sha256])
        request = JobRequest(UPLOAD, key, work_id=self._work_id, name=self.name)
        (planned,) = self._ledger.plan(self.scope, [request], again="failed")
        if planned.status is Status.COMPLETED and self._artifact(planned.job_id) is None:
            (planned,) = self._ledger.plan(
                self.scope, [request], again="always"
            )  # its bytes are lost: these replace them
        return planned

    def _held(self, planned: Planned) -> Got | None:
        artifact = self._artifact(planned.job_id) if planned.status is Status.COMPLETED else None
        return self._got(planned.job_id, artifact, held=True) if artifact else None

    def _artifact(self, job_id: str) -> Artifact | None:
        for artifact in self._ledger.results(self.scope, job_id):
            blob = self._store.stat(self.scope, artifact.sha256)
            if artifact.availability == "available" and blob is not None and blob.size_bytes == artifact.size_bytes:
                return artifact
        return None

    def _lease(self, planned: Planned) -> Lease | None:
        """Lease the job; None when somebody else, uploading the same bytes, completed it meanwhile."""
        liveness, end = self._depot.yard.liveness, time.monotonic() + _TTL_S
        liveness.hold()
        while True:
            leases = self._ledger.claim(
                liveness.owner, limit=1, ttl_s=_TTL_S, job_types=[UPLOAD], scope=self.scope, job_ids=[planned.job_id]
            )
            if leases:
                return leases[0]
            if self._ledger.job(self.scope, planned.job_id).status is Status.COMPLETED:
                return None
            if time.monotonic() > end:
                raise LongshoreError("the same bytes are being uploaded by another process", hint="try again later")
            if not self._ledger.release_dead(liveness.dead()):
                time.sleep(_POLL_S)

    def _publish(self, lease: Lease, part: Part, token: str) -> Got:
        item = Staged(self.scope, token, 1, part.sha256, part.size_bytes, str(self._content_type), part)
        key = op_key(FINALIZE, lease.job_id, sha256=part.sha256)
        try:
            self._begin(lease, key, part)
            blob = self._link(item)
        except StoreError as error:
            self._ledger.settle([(lease, Deferred("disk_error", str(error), 0.0, counts=False))])
            raise
        failpoints.hit("put.linked")
        made = NewArtifact(blob, self._artifact_type, name=self.name)
        (settled,) = self._ledger.settle([(lease, Completed((made,), facts={"size_bytes": blob.size_bytes}))])
        failpoints.hit("put.settled")
        if isinstance(settled, LongshoreError):
            raise settled
        self._store.clean([item])
        (artifact,) = self._ledger.results(self.scope, lease.job_id)
        return self._got(lease.job_id, artifact)

    def _begin(self, lease: Lease, key: str, part: Part) -> None:
        """Commit what is about to be published: reconcile leaves a blob alone that an intent names."""
        intent = Intent(lease, FINALIZE, key, "verifiable", part.sha256, {"sha256": part.sha256})
        (begun,) = self._ledger.begin([intent])
        if isinstance(begun, LongshoreError):
            raise begun

    def _link(self, item: Staged) -> Blob:
        (error,) = self._store.stage([item])
        if error is not None:
            raise error
        (blob,) = self._store.link([item])
        if isinstance(blob, StoreError):
            raise blob
        return blob

    def _got(self, job_id: str, artifact: Artifact | None, *, held: bool = False) -> Got:
        path = self._store.path(self.scope, artifact.pointer) if artifact else None
        return Got(job_id, None, Status.COMPLETED, held, artifact, path, attempts=1)
