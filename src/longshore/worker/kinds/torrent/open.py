"""The torrent side of an open depot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from longshore.transfer import Transfer
from longshore.worker.kinds.torrent.fetch_metainfo import fetcher
from longshore.worker.kinds.torrent.service import TorrentService
from longshore.worker.kinds.torrent.sync_loop import Reports, forever

if TYPE_CHECKING:
    from longshore.config import Settings


class OpenDepot(Protocol):
    """What we need of a depot: its configuration, and its yard (ledger, store, transfer, policy, liveness, leases)."""

    settings: Settings
    runtime: Any


@asynccontextmanager
async def open_torrent_service(depot: OpenDepot) -> AsyncIterator[TorrentService]:
    """Open the torrent side in the running loop."""
    settings, runtime = depot.settings.qbittorrent, depot.runtime
    async with Transfer(runtime.settings, runtime.policy) as transfer:
        desk = TorrentService(
            runtime.ledger,
            runtime.store,
            settings,
            fetcher(transfer, settings.max_torrent_bytes),
            owner=runtime.liveness.owner,
            lease=runtime.settings.lease,
        )
        try:
            yield desk
        finally:
            await desk.sync.stop()


async def sync_forever(depot: OpenDepot, stop: asyncio.Event, report: Reports | None = None) -> None:
    """Run the sync loop until stopped. Without torrent jobs the client is never contacted."""
    async with open_torrent_service(depot) as desk:
        await forever(desk.sync, stop, report)


@asynccontextmanager
async def syncing(depot: OpenDepot) -> AsyncIterator[None]:
    """Run the sync loop for the duration of the block."""
    stop = asyncio.Event()
    task = asyncio.get_running_loop().create_task(sync_forever(depot, stop))
    try:
        yield
    finally:
        stop.set()
        await task
