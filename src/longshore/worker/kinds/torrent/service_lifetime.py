"""The torrent side of an open depot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from longshore.transfer import Transfer
from longshore.worker.kinds.torrent.fetch_metainfo import fetcher
from longshore.worker.kinds.torrent.service import TorrentService
from longshore.worker.kinds.torrent.sync_loop import Reports, forever
from longshore.worker.runtime import Runtime


@asynccontextmanager
async def open_torrent_service(runtime: Runtime) -> AsyncIterator[TorrentService]:
    """Open the torrent side in the running loop."""
    settings = runtime.settings.qbittorrent
    async with Transfer(runtime.settings, runtime.policy) as transfer:
        service = TorrentService(
            runtime.ledger,
            runtime.store,
            settings,
            fetcher(transfer, settings.max_torrent_bytes),
            owner=runtime.liveness.owner,
            lease=runtime.settings.lease,
        )
        try:
            yield service
        finally:
            await service.sync.stop()


async def sync_forever(runtime: Runtime, stop: asyncio.Event, report: Reports | None = None) -> None:
    """Run the sync loop until stopped. Without torrent jobs the client is never contacted."""
    async with open_torrent_service(runtime) as service:
        await forever(service.sync, stop, report)


@asynccontextmanager
async def syncing(runtime: Runtime) -> AsyncIterator[None]:
    """Run the sync loop for the duration of the block."""
    stop = asyncio.Event()
    task = asyncio.get_running_loop().create_task(sync_forever(runtime, stop))
    try:
        yield
    finally:
        stop.set()
        await task
