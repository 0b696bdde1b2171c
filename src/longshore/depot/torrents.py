"""Torrents for a library: `depot.torrents` starts, lists, cancels and synchronizes downloads of a qBittorrent client."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from longshore.domain.kinds import TORRENT
from longshore.domain.model import Artifact, Scope
from longshore.errors import BadInput
from longshore.ledger.operations.book_assets import BookStatus, book_status
from longshore.ledger.queries.books import Book, book, books
from longshore.ledger.queries.lookup import results
from longshore.ledger.queries.torrents import Tracked, torrent, torrents

if TYPE_CHECKING:
    from longshore.depot.depot_context import DepotContext
    from longshore.ledger.user_tables import Hook
    from longshore.worker.kinds.torrent.service import TorrentService
    from longshore.worker.kinds.torrent.sync_loop import Cycle

PAGE = 1_000

P = ParamSpec("P")
T = TypeVar("T")


class Checked(Protocol):
    """Refuses calls on a closed depot (`AsyncDepot`)."""

    def __call__(self, method: Callable[P, T], /) -> Callable[P, T]:
        """Return the method with the check."""


class Driven(Protocol):
    """Runs a coroutine method to completion (`sync_depot.driven`)."""

    def __call__(self, method: Callable[P, Coroutine[Any, Any, T]], /) -> Callable[P, T]:
        """Return the synchronous variant."""


class Torrents:
    """The torrent side of a depot."""

    def __init__(self, depot: DepotContext, checked: Checked) -> None:
        self._depot = depot
        self.start, self.cancel = checked(self._start), checked(self._cancel)
        self.list, self.show = checked(self._list), checked(self._show)
        self.files, self.sync = checked(self._files), checked(self._sync)
        self.books, self.book, self.status = checked(self._books), checked(self._book), checked(self._status)

    def on_completed(self, hook: Hook) -> None:
        """Call `hook(tx, done)` in the transaction that completes a torrent, in this process; see `Ledger.on_completed`."""
        self._depot.ledger.on_completed(TORRENT, hook)

    async def _start(
        self,
        source: str | os.PathLike[str] | bytes,
        *,
        user_id: str,
        book_id: str,
        media_type: str,
        again: bool = False,
        scope: Scope | None = None,
    ) -> Tracked:
        """Start a download from a magnet link, a URL, or a .torrent as a path or bytes; return its job.

        The same request again returns the same job. `Conflict` is raised while another source is active for the same user,
        book and media type, and for a release that failed before, unless `again` is set. If the client is away, the job waits.
        """
        from longshore.worker.kinds.torrent.service import request_of

        where, most = scope or self._depot.scope, self._depot.settings.qbittorrent.max_torrent_bytes
        name, metainfo = _source(source, most)
        named = {"user_id": user_id, "book_id": book_id, "media_type": media_type}
        request = request_of(where, name, metainfo=metainfo, max_bytes=most, again=again, **named)
        async with self._service() as service:
            started = await service.start(request)
            job, _ = await service.hand_over(where, started.job_id)
            return job

    async def _cancel(self, job_id: str, *, with_files: bool = False, scope: Scope | None = None) -> Tracked:
        """Cancel a job; `with_files` also removes the files that Longshore had the client fetch."""
        async with self._service() as service:
            return await service.cancel(scope or self._depot.scope, job_id, with_files=with_files)

    async def _list(self, *, active: bool = False, scope: Scope | None = None) -> list[Tracked]:
        """List the jobs in the order in which they were started."""
        where, found = scope or self._depot.scope, list[Tracked]()
        while page := await self._read(torrents, where, after=found[-1].job_id if found else "", limit=PAGE):
            found += page
        return [job for job in found if not active or job.status in ("pending", "processing")]

    async def _show(self, job_id: str, *, scope: Scope | None = None) -> Tracked:
        """Return one job; `watch.note` says why a finished torrent was not imported yet."""
        job: Tracked = await self._read(torrent, scope or self._depot.scope, job_id)
        return job

    async def _files(self, job_id: str, *, scope: Scope | None = None) -> list[Artifact]:
        """Return the files of a completed job in the torrent's order; `metadata["path"]` is the path inside it."""
        found: list[Artifact] = await self._read(results, scope or self._depot.scope, job_id)
        return found

    async def _sync(self) -> Cycle:
        """Synchronize once with the client, and import what has finished. `longshore serve` does so all the time."""
        from longshore.worker.runtime import release_dead_owners

        self._depot.runtime.liveness.hold()
        await release_dead_owners(self._depot.runtime)
        async with self._service() as service:
            cycle = await service.sync.cycle()
            await service.sync.drain()
            cycle.completed += service.sync.take_completed()
            return cycle

    async def _books(self, *, after: str = "", limit: int = PAGE, scope: Scope | None = None) -> list[Book]:
        """Return a page of the books with their assets, in the order of their ids."""
        found: list[Book] = await self._read(books, scope or self._depot.scope, after=after, limit=limit)
        return found

    async def _book(self, book_id: str, *, scope: Scope | None = None) -> Book:
        """Return one book with its assets."""
        found: Book = await self._read(book, scope or self._depot.scope, book_id)
        return found

    async def _status(self, book_id: str, media_type: str, *, scope: Scope | None = None) -> BookStatus | None:
        """Return where a book stands and its asset of one media type; None if it was never requested."""
        found: BookStatus | None = await self._read(book_status, scope or self._depot.scope, book_id, media_type)
        return found

    async def _read(self, verb: Callable[..., Any], *arguments: Any, **given: Any) -> Any:
        return await self._depot.ledger.read_async(verb, *arguments, **given)

    @asynccontextmanager
    async def _service(self) -> AsyncIterator[TorrentService]:
        from longshore.worker.kinds.torrent.service_lifetime import open_torrent_service

        async with open_torrent_service(self._depot.runtime) as service:
            yield service


class SyncTorrents:
    """The same methods, each run to completion."""

    def __init__(self, torrents: Torrents, driven: Driven) -> None:
        self.on_completed = torrents.on_completed
        self.start, self.cancel = driven(torrents.start), driven(torrents.cancel)
        self.list, self.show = driven(torrents.list), driven(torrents.show)
        self.files, self.sync = driven(torrents.files), driven(torrents.sync)
        self.books, self.book, self.status = driven(torrents.books), driven(torrents.book), driven(torrents.status)


def _source(source: str | os.PathLike[str] | bytes, most: int) -> tuple[str, bytes | None]:
    """Return the source's name and, for a .torrent, its bytes."""
    if isinstance(source, bytes):
        return "torrent:bytes", source
    text = os.fspath(source)
    if text.lower().startswith(("magnet:", "http://", "https://")):
        return text, None
    path = Path(text.removeprefix("file://"))
    try:
        with path.open("rb") as file:
            body = file.read(most + 1)
    except (OSError, ValueError) as error:
        raise BadInput(f"{text[:200]!r} is not a magnet link, an http(s) URL or a readable file: {error}") from None
    return path.resolve().as_uri(), body
