"""Torrents: submit, query, cancel. The depot's torrent component does the work."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from longshore.domain.kinds import ACTIVE, TORRENT, Status
from longshore.domain.model import Job, Scope
from longshore.ledger.operations.torrents import start_torrent, want_cancel
from longshore.ledger.queries import listing, lookup
from longshore.web.api.common import After, Limit, PathId, Serving, not_found, router
from longshore.web.api.models import BulkOut, JobAnswer, JobOut, JobPage, TorrentIn
from longshore.web.security.auth import Reader, Writer, act
from longshore.web.serializers import View, job_view
from longshore.web.service import Service
from longshore.worker.kinds.torrent.service import request_of

routes = router("torrents", 404, 409, 422)


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
    asked = request_of(
        caller.scope, body.source, user_id=body.user_id, book_id=body.book_id, media_type=body.media_type
    )
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


@routes.get("/torrents/{job_id}", response_model=JobOut)
async def show_torrent(job_id: PathId, caller: Reader, service: Serving) -> View:
    """Show one torrent job."""
    return job_view(await _torrent(service, caller.scope, job_id))


@routes.post("/torrents/{job_id}/cancel", response_model=BulkOut)
async def cancel_torrent(job_id: PathId, caller: Writer, service: Serving) -> View:
    """Cancel one torrent job."""
    before = await _torrent(service, caller.scope, job_id)
    noted = {"act": "cancel", "count": int(before.status in ACTIVE)}
    await act(service, caller, want_cancel, caller.scope, job_id, with_files=False, note=lambda _: noted)
    acted = [job_id] if before.status in ACTIVE else []
    return {"count": len(acted), "job_ids": acted}
