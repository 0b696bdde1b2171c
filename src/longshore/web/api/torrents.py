"""Torrents: hand in, look at, cancel. The work itself is done by the torrent side of the depot."""

from __future__ import annotations

from fastapi import Request, Response

from longshore.domain.model import Job, Scope
from longshore.domain.states import TORRENT, Status
from longshore.ledger import listing, lookup
from longshore.web.access import Reader, Writer
from longshore.web.api.bulk import act_on_all
from longshore.web.api.routing import After, Limit, PathId, Serving, not_found, request_id, router
from longshore.web.models import BulkIn, BulkOut, JobAnswer, JobOut, JobPage, TorrentIn
from longshore.web.problems import Problem
from longshore.web.service import Service
from longshore.web.views import View, job_view

routes = router("torrents", 404, 409, 422)


@routes.get("/torrents", response_model=JobPage)
async def list_torrents(
    caller: Reader, service: Serving, limit: Limit, status: Status | None = None, after: After = None
) -> View:
    """List torrent jobs, newest first."""
    wanted = listing.JobFilter(job_type=TORRENT, status=status)
    page = await service.ledger.read_soon(listing.jobs, caller.scope, wanted, after=after, limit=limit)
    return {"jobs": [job_view(job) for job in page.items], "next": page.next}


@routes.post(
    "/torrents",
    status_code=202,
    response_model=JobAnswer,
    responses={200: {"model": JobAnswer, "description": "An active job for it exists"}},
)
async def create_torrent(
    body: TorrentIn, request: Request, response: Response, caller: Writer, service: Serving
) -> View:
    """Start a torrent for a book. Asking again while it is active gives the same job."""
    if service.torrents is None:
        raise Problem(503, "torrents_off", "no torrent client is configured (section qbittorrent)")
    created, job = await service.torrents.start(caller.scope, body, request_id(request))
    response.status_code = 202 if created else 200
    response.headers["Location"] = f"/api/v1/torrents/{job.job_id}"
    return {"created": created, "job": job_view(job)}


async def _torrent(service: Service, scope: Scope, job_id: str) -> Job:
    job: Job = await service.ledger.read_soon(lookup.job, scope, job_id)
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
    await _torrent(service, caller.scope, job_id)
    return await act_on_all(service, caller.scope, BulkIn(job_ids=[job_id]), "cancel")
