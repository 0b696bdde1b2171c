"""The torrent side of an open depot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from longshore.domain.torrents import QbittorrentSettings
from longshore.torrents.desk import Desk
from longshore.torrents.fetching import fetcher
from longshore.torrents.sync import Reports, forever
from longshore.transfer import Transfer

if TYPE_CHECKING:
    from longshore.config import Settings


class OpenDepot(Protocol):
    """What we need of a depot: its configuration, and its yard (ledger, store, transfer, policy, liveness, leases)."""

    settings: Settings
    yard: Any


def torrent_settings(settings: Settings) -> QbittorrentSettings:
    """Make our settings of the section `qbittorrent`."""
    given = settings.qbittorrent
    return QbittorrentSettings(
        url=given.url,
        username=given.username or "",
        password=given.password.reveal() if given.password is not None else "",
        api_key=given.api_key.reveal() if given.api_key is not None else "",
        category=given.category,
        save_path=given.save_path or "",
        poll_s=given.poll_s,
        batch=given.batch,
        not_found_grace_s=given.not_found_grace_s,
        error_grace_s=given.error_grace_s,
        stall_s=given.stall_s,
        metadata_s=given.metadata_s,
        enqueue_attempts=given.enqueue_attempts,
        path_map=tuple(given.path_map.items()),
        hardlink=given.hardlink,
        max_torrent_bytes=given.max_torrent_bytes,
    )


@asynccontextmanager
async def open_desk(depot: OpenDepot) -> AsyncIterator[Desk]:
    """Open the torrent side in the running loop."""
    settings, yard = torrent_settings(depot.settings), depot.yard
    async with Transfer(yard.transfer, yard.policy) as transfer:
        desk = Desk(
            yard.ledger,
            yard.store,
            settings,
            fetcher(transfer, settings.max_torrent_bytes),
            owner=yard.liveness.owner,
            lease_ttl_s=yard.engine.lease.ttl_s,
            lease_renew_s=yard.engine.lease.renew_s,
        )
        try:
            yield desk
        finally:
            await desk.sync.stop()


async def sync_forever(depot: OpenDepot, stop: asyncio.Event, report: Reports | None = None) -> None:
    """Keep torrents in step until told to stop. Without torrent jobs the client is never asked for anything."""
    async with open_desk(depot) as desk:
        await forever(desk.sync, stop, report)


@asynccontextmanager
async def syncing(depot: OpenDepot, *, wanted: bool = True) -> AsyncIterator[None]:
    """Keep torrents in step for as long as the block lasts."""
    if not wanted:
        yield
        return
    stop = asyncio.Event()
    task = asyncio.get_running_loop().create_task(sync_forever(depot, stop))
    try:
        yield
    finally:
        stop.set()
        await task
