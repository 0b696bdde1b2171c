"""The torrent side of a depot: start, look, cancel, keep in step."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from longshore.domain.kinds import ACTIVE, Status
from longshore.domain.model import Artifact, Scope
from longshore.domain.settings import LeaseSettings, QbittorrentSettings
from longshore.domain.torrents.model import Identity, Seen, TorrentRequest, torrent_request
from longshore.errors import BadInput, Reasoned
from longshore.ledger.operations.book_assets import BookStatus, book_status
from longshore.ledger.operations.torrents import Started, start_torrent, want_cancel
from longshore.ledger.queries.lookup import results
from longshore.ledger.queries.torrents import Tracked, torrent, torrents
from longshore.worker.kinds.torrent.cancel import cancel_in_client, remove_from_client
from longshore.worker.kinds.torrent.client import Client, ClientAway
from longshore.worker.kinds.torrent.identity import from_magnet, from_metainfo
from longshore.worker.kinds.torrent.sync_loop import Sync

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Store
    from longshore.worker.kinds.torrent.add_to_client import Fetch


def request_of(
    scope: Scope,
    source: str,
    *,
    user_id: str,
    book_id: str,
    media_type: str,
    metainfo: bytes | None = None,
    max_bytes: int = 10 << 20,
    again: bool = False,
) -> TorrentRequest:
    """Check a source as a person gives it: a magnet link, an http(s) URL, or a .torrent's bytes with its name."""
    identity = Identity()
    if metainfo is not None:
        if len(metainfo) > max_bytes:
            raise BadInput(f"the .torrent file has {len(metainfo)} bytes; {max_bytes} are allowed")
        try:
            identity = from_metainfo(metainfo)
        except Reasoned as error:
            raise BadInput(str(error)) from None
    elif source.lower().startswith("magnet:"):
        identity = from_magnet(source)
    elif not source.lower().startswith(("http://", "https://")):
        raise BadInput("a torrent comes from a magnet link, an http(s) URL or a .torrent file")
    return torrent_request(
        scope,
        user_id=user_id,
        book_id=book_id,
        media_type=media_type,
        source=source,
        identity=identity,
        metainfo=metainfo,
        again=again,
    )


class TorrentService:
    """Everything that a person or an API does with torrents."""

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        settings: QbittorrentSettings,
        fetch: Fetch,
        *,
        owner: str,
        client: Client | None = None,
        lease: LeaseSettings | None = None,
    ) -> None:
        self.ledger, self.store, self.settings = ledger, store, settings
        self.client = client or Client(settings)
        self.sync = Sync(
            ledger,
            store,
            self.client,
            fetch,
            settings,
            owner=owner,
            lease=lease,
        )

    async def start(self, request: TorrentRequest) -> Started:
        """Create the job, or return the existing one; the sync loop adds its torrent to the client."""
        return await self.ledger.write_async(start_torrent, request)

    async def hand_over(self, scope: Scope, job_id: str) -> tuple[Tracked, ClientAway | None]:
        """Add one job's torrent to the client now; return an error if the client is unreachable."""
        job, away = await self.ledger.read_async(torrent, scope, job_id), None
        if job.status in ACTIVE and job.watch.added_at is None:
            away = await self.sync.now(job)
        return await self.ledger.read_async(torrent, scope, job_id), away

    async def show(self, scope: Scope, job_id: str) -> Tracked:
        """Show one job."""
        return await self.ledger.read_async(torrent, scope, job_id)

    async def book_status(self, job: Tracked) -> BookStatus | None:
        """Show where the job's book stands and what there is of it in the job's medium."""
        return await self.ledger.read_async(book_status, job.scope, job.book_id, job.media_type)

    async def files(self, scope: Scope, job_id: str) -> list[tuple[Artifact, str | None]]:
        """Return what a completed job brought, in the torrent's order, and where it lies if the store is local."""
        found = await self.ledger.read_async(results, scope, job_id)
        places = [self.store.path(scope, artifact.pointer) for artifact in found]
        return [(artifact, str(place) if place else None) for artifact, place in zip(found, places, strict=True)]

    async def list(self, scope: Scope, *, after: str = "", limit: int = 1000) -> list[Tracked]:
        """List the jobs of a project in the order in which they were started."""
        return await self.ledger.read_async(torrents, scope, after=after, limit=limit)

    async def cancel(self, scope: Scope, job_id: str, *, with_files: bool = False) -> Tracked:
        """Ask for the cancel and do it if the client answers; otherwise the loop does it when it does.

        What a job that failed left in the client goes too.
        """
        job = await self.ledger.write_async(want_cancel, scope, job_id, with_files=with_files)
        with contextlib.suppress(ClientAway):
            if job.status in ACTIVE:
                await cancel_in_client(self.ledger, self.client, job, await self._found(job))
            elif job.status is Status.FAILED and (left := await self._found(job)) is not None:
                await remove_from_client(self.ledger, self.client, job, left, with_files=with_files)
        return await self.ledger.read_async(torrent, scope, job_id)

    async def _found(self, job: Tracked) -> Seen | None:
        """Look a job's torrent up, under another id too if it was ever handed over."""
        found = await asyncio.to_thread(self.client.by_ids, job.identity.ids)
        if not found and job.watch.added_at is not None:
            everything = await asyncio.to_thread(self.client.everything)
            found = [seen for seen in everything if job.identity.overlaps(seen.identity)]
        return found[0] if found else None
