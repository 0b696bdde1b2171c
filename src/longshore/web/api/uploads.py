"""Uploads by the API: the body is streamed into the depot."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

from longshore import failpoints
from longshore.domain.model import Blob, Lease, Scope
from longshore.store import Staged
from longshore.web.service import Service
from longshore.worker.kinds.upload.session import Uploaded, Uploader, UploadRequest, UploadSession

failpoints.declare("upload.received", "upload.linked")

PIECE = 1 << 20
PATIENCE_S = 1.0  # wait for a concurrent upload of the same bytes; leases of dead local processes are freed at once

__all__ = ["UploadRequest", "upload"]


class Upload(UploadSession):
    """An upload by the API, with its own failpoints."""

    def _linked(self, lease: Lease, item: Staged) -> Blob:
        blob = super()._linked(lease, item)
        failpoints.hit("upload.linked")
        return blob


async def upload(service: Service, scope: Scope, stream: AsyncIterator[bytes], meant: UploadRequest) -> Uploaded:
    """Store bytes; the same bytes again return the same job."""
    taking = await asyncio.to_thread(Upload, service.ledger, service.store, scope, meant, _worker(service))
    try:
        pending = bytearray()
        async for chunk in stream:
            pending += chunk
            if len(pending) >= PIECE:
                await asyncio.to_thread(taking.write, bytes(pending))
                pending.clear()
        await asyncio.to_thread(taking.write, bytes(pending))
        failpoints.hit("upload.received")
        return await asyncio.to_thread(taking.finish)
    finally:
        await asyncio.to_thread(taking.discard)


def _worker(service: Service) -> Uploader:
    """Return the liveness lock of the depot; it shows other processes of this machine when this one dies."""
    if service.depot is None:
        return Uploader(f"upload-{secrets.token_hex(6)}", patience_s=PATIENCE_S)
    liveness = service.depot.runtime.liveness
    liveness.hold()
    return Uploader(liveness.owner, liveness.dead, patience_s=PATIENCE_S)
