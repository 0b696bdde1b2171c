"""An upload by the API: the body's bytes go to the depot's own intake as they arrive."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

from longshore import failpoints
from longshore.depot.taking import Meant, Taken, Taking, Worker
from longshore.domain.model import Blob, Scope
from longshore.store import Staged
from longshore.web.service import Service

failpoints.declare("upload.received", "upload.linked")

PIECE = 1 << 20
PATIENCE_S = 1.0  # for somebody who uploads the same bytes; what a dead process of this machine held is free at once

__all__ = ["Meant", "upload"]


class Upload(Taking):
    """An upload of the API, with places of its own where a test can kill it."""

    def _link(self, item: Staged) -> Blob:
        blob = super()._link(item)
        failpoints.hit("upload.linked")
        return blob


async def upload(service: Service, scope: Scope, stream: AsyncIterator[bytes], meant: Meant) -> Taken:
    """Take bytes aboard; the same bytes again give the same job."""
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


def _worker(service: Service) -> Worker:
    """Give the sign of life of the depot that is served; its lock tells others of this machine when we die."""
    if service.depot is None:
        return Worker(f"upload-{secrets.token_hex(6)}", patience_s=PATIENCE_S)
    liveness = service.depot.yard.liveness
    liveness.hold()
    return Worker(liveness.owner, liveness.dead, patience_s=PATIENCE_S)
