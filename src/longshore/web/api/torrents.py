"""Torrents: submit, query, cancel. The depot's torrent component does the work."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Response

from longshore.domain.kinds import ACTIVE, TORRENT, Status
from longshore.domain.model import Job, Scope
from longshore.ledger.operations.torrents import start_torrent, want_cancel
from longshore.ledger.queries import listing, lookup
from longshore.ledger.queries.books import Book, book, books
from longshore.ledger.queries.torrents import torrent
from longshore.web.api.common import After, Limit, PathId, Serving, not_found, router
from longshore.web.api.models import BookOut, BookPage, BulkOut, JobAnswer, JobPage, TorrentIn, TorrentOut
from longshore.web.dashboard.render import stamp
from longshore.web.security.auth import Reader, Writer, act
from longshore.web.serializers import View, job_view
from longshore.web.service import Service
from longshore.worker.kinds.torrent.service import request_of

routes = router("torrents", 404, 409, 422)
BookId = Annotated[str, Path(min_length=1, max_length=1024)]


@routes.get("/torrents", response_model=JobPage)
async def list_torrents(
    caller: Reader, service: Serving, limit: Limit, status: Status | None = None, after: After = None
) -> View:
    """List torrent jobs, newest first."""
    wanted = listing.JobFilter(job_type=TORRENT, status=status)
    page = await service.job_page(caller.token, wanted, after, limit)
    return {"jobs": [job_view(job) for job in page.items], "next": page.next}


@routes.post(
    "/torrents",
    status_code=202,
    response_model=JobAnswer,
    responses={200: {"model": JobAnswer, "description": "An active job for it exists"}},
)
async def create_torrent(body: TorrentIn, response: Response, caller: Writer, service: Serving) -> View:
    """Start a torrent for a book. The same request again returns the same job; the sync adds it to the client."""
    named: dict[str, Any] = {"user_id": body.user_id, "book_id": body.book_id, "media_type": body.media_type}
    asked = request_of(caller.scope, body.source, again=body.again, **named)
    started = await act(service, caller, start_torrent, asked, note=_added)
    job = await service.ledger.read_async(lookup.job, caller.scope, started.job_id)
    response.status_code = 202 if started.created else 200
    response.headers["Location"] = f"/api/v1/torrents/{job.job_id}"
    return {"created": started.created, "job": job_view(job)}


def _added(started: Any) -> View:
    status = 202 if started.created else 200
    return {"status": status, "act": "add", "count": int(started.created), "job_id": started.job_id}


async def _torrent(service: Service, scope: Scope, job_id: str) -> Job:
    job: Job = await service.ledger.read_async(lookup.job, scope, job_id)
    if job.job_type != TORRENT:
        raise not_found("job")
    return job


@routes.get("/torrents/{job_id}", response_model=TorrentOut)
async def show_torrent(job_id: PathId, caller: Reader, service: Serving) -> View:
    """Show one torrent job. `note` says why it does not go on, or why a finished torrent was not imported yet."""
    job = await _torrent(service, caller.scope, job_id)
    watch = (await service.ledger.read_async(torrent, caller.scope, job_id)).watch
    told = {"client_state": watch.state or None, "substate": watch.substate or None, "note": watch.note}
    return {**job_view(job), **told, "torrent_name": watch.name or None}


@routes.get("/books", response_model=BookPage)
async def list_books(caller: Reader, service: Serving, limit: Limit, after: After = None) -> View:
    """List books with their assets, in the order of their ids."""
    found = await service.ledger.read_async(books, caller.scope, after=after or "", limit=limit + 1)
    page = found[:limit]
    return {"books": [_book(one) for one in page], "next": page[-1].book_id if len(found) > limit else None}


@routes.get("/books/{book_id}", response_model=BookOut)
async def show_book(book_id: BookId, caller: Reader, service: Serving) -> View:
    """Show one book with its assets. An asset's files are the results of its job."""
    return _book(await service.ledger.read_async(book, caller.scope, book_id))


def _book(one: Book) -> View:
    assets = [
        {
            "media_type": asset.media_type,
            "status": asset.status,
            "artifact_id": asset.artifact_id,
            "job_id": asset.job_id,
            "updated_at": stamp(asset.updated_at),
        }
        for asset in one.assets
    ]
    return {"book_id": one.book_id, "state": one.state, "updated_at": stamp(one.updated_at), "assets": assets}


@routes.post("/torrents/{job_id}/cancel", response_model=BulkOut)
async def cancel_torrent(job_id: PathId, caller: Writer, service: Serving) -> View:
    """Cancel one torrent job."""
    before = await _torrent(service, caller.scope, job_id)
    noted = {"act": "cancel", "count": int(before.status in ACTIVE)}
    await act(service, caller, want_cancel, caller.scope, job_id, with_files=False, note=lambda _: noted)
    acted = [job_id] if before.status in ACTIVE else []
    return {"count": len(acted), "job_ids": acted}
