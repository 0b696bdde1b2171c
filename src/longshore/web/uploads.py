"""An upload is a job: planned by the hash of its bytes, leased to this request, published and registered like any other.

A server killed on the way leaves a part (the reconciler's) and at most a job without a result, which the repeated
upload finds by its key and finishes.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from longshore import failpoints
from longshore.domain.keys import check_text, content_key, op_key
from longshore.domain.model import Blob, Job, JobRequest, Lease, NewArtifact, Scope
from longshore.domain.outcomes import Completed, Deferred
from longshore.domain.states import UPLOAD, Status
from longshore.engine.liveness import Liveness
from longshore.errors import Conflict, LongshoreError, Reasoned
from longshore.ledger import lookup, planning
from longshore.ledger.effects import begin
from longshore.ledger.ids import new_id
from longshore.ledger.records import Intent
from longshore.ledger.settling import settle
from longshore.ledger.sweeping import release_dead
from longshore.store import Part, Staged
from longshore.web.service import Service

failpoints.declare("upload.received", "upload.linked")

TTL_S = 300.0
PIECE = 1 << 20
HELD_BY_ANOTHER = "these bytes are being uploaded by another request"


@dataclass(frozen=True, slots=True)
class Meant:
    """What the sender says about the bytes."""

    name: str | None = None
    artifact_type: str = "upload"
    content_type: str = "application/octet-stream"
    sha256: str | None = None
    request_id: str | None = None


async def upload(service: Service, scope: Scope, stream: AsyncIterator[bytes], meant: Meant) -> tuple[bool, Job]:
    """Take bytes aboard; the same bytes under the same name again give the same job."""
    if meant.name is not None:
        check_text("name", meant.name, limit=255)
    # The part comes before the job, because the job is known by the bytes: it has a name of its own until then.
    part = await asyncio.to_thread(service.store.part, scope, f"upload-{new_id(service.started_at)}", 1)
    try:
        await _receive(part, stream)
        failpoints.hit("upload.received")
        if meant.sha256 is not None and part.sha256 != meant.sha256:
            raise Reasoned("digest_mismatch", f"the bytes have the SHA-256 {part.sha256}, not the expected one")
        request = _request(scope, part.sha256, meant)
        planned = (await service.ledger.soon(planning.plan, scope, [request], again="failed"))[0]
        if planned.status is not Status.COMPLETED:
            await _publish(service, await _lease(service, scope, planned.job_id), part, meant)
        return planned.created, await service.ledger.read_soon(lookup.job, scope, planned.job_id)
    finally:
        await asyncio.to_thread(part.discard)


async def _receive(part: Part, stream: AsyncIterator[bytes]) -> None:
    pending = bytearray()
    async for chunk in stream:
        pending += chunk
        if len(pending) >= PIECE:
            await asyncio.to_thread(part.write, bytes(pending))
            pending.clear()
    await asyncio.to_thread(part.write, bytes(pending))


def _request(scope: Scope, sha256: str, meant: Meant) -> JobRequest:
    params = {"name": meant.name, "artifact_type": meant.artifact_type}
    key = content_key(scope.tenant_id, scope.project_id, UPLOAD, [sha256], {**params})
    return JobRequest(UPLOAD, key, name=meant.name, request_id=meant.request_id)


async def _lease(service: Service, scope: Scope, job_id: str) -> Lease:
    """Lease the upload's job; what a process of this machine held when it died is free at once."""
    leases = await _claim(service, scope, job_id)
    liveness = _liveness(service)
    if not leases and liveness is not None:
        dead = await asyncio.to_thread(liveness.dead)
        released = await service.ledger.soon(release_dead, dead)
        leases = await _claim(service, scope, job_id) if released else leases
    if not leases:
        raise Conflict(HELD_BY_ANOTHER, job_id=job_id, hint="wait for that job, or try again")
    return leases[0]


async def _claim(service: Service, scope: Scope, job_id: str) -> list[Lease]:
    liveness = _liveness(service)
    if liveness:
        liveness.hold()
    owner = liveness.owner if liveness else f"upload-{secrets.token_hex(6)}"
    return await service.ledger.claim_soon(
        owner, limit=1, ttl_s=TTL_S, job_types=[UPLOAD], scope=scope, job_ids=[job_id], defaults=service.hosts
    )


def _liveness(service: Service) -> Liveness | None:
    """Give the sign of life of the depot that is served; its lock tells others of this machine when we die."""
    return service.depot.yard.liveness if service.depot is not None else None


async def _publish(service: Service, lease: Lease, part: Part, meant: Meant) -> None:
    """Make the bytes durable, write down what is about to appear, let it appear, register it: in this order."""
    item = Staged(lease.scope, lease.job_id, lease.epoch, part.sha256, part.size_bytes, meant.content_type, part)
    try:
        _raise(await asyncio.to_thread(service.store.stage, [item]))
        key = op_key("FINALIZE", lease.job_id, sha256=part.sha256)
        facts = {"sha256": part.sha256, "size_bytes": part.size_bytes}
        # The fingerprint is what keeps a reconciler from taking the blob for one that nobody wants.
        intent = Intent(lease, "FINALIZE", key, "verifiable", part.sha256, facts)
        _raise(await service.ledger.soon(begin, [intent]))
        [blob] = await asyncio.to_thread(service.store.link, [item])
        if not isinstance(blob, Blob):
            raise blob
        failpoints.hit("upload.linked")
        new = NewArtifact(blob, meant.artifact_type, name=meant.name)
        _raise(await service.ledger.soon(settle, [(lease, Completed((new,)))]))
    except LongshoreError as error:
        # Given back for the repeated upload; nobody else works on uploads.
        await service.ledger.soon(settle, [(lease, Deferred("store_unavailable", str(error), 0.0, counts=False))])
        raise
    await asyncio.to_thread(service.store.clean, [item])


def _raise(results: list[Any]) -> None:
    for result in results:
        if isinstance(result, Exception):
            raise result
