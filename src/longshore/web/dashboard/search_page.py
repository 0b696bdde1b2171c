"""One box for everything: ids, the beginning of a hash, parts of names and URLs, hosts."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from longshore.ledger.queries.search import Found, search
from longshore.web.dashboard.pages import show
from longshore.web.problems import Problem
from longshore.web.security.auth import Caller, Reader
from longshore.web.serializers import View, artifact_view, job_view
from longshore.web.service import Service

routes = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

LONGEST: Final = 2_000


async def found(service: Service, caller: Caller, request: Request) -> View:
    """Return what fits the text."""
    text = request.query_params.get("q", "").strip()
    if len(text) > LONGEST or "\0" in text:
        raise Problem(422, "bad_input", f"a search has at most {LONGEST:,} characters")
    result = Found([], [], None)
    if text:
        after = request.query_params.get("after") or None
        result = await service.costly.run(caller.token.root_id, search, caller.scope, text, after=after)
    hosts = sorted({job.request.host for job in result.jobs if text and text.lower() in job.request.host})
    return {
        "q": text,
        "jobs": [service.with_progress(job_view(job)) | {"waits": None} for job in result.jobs],
        "artifacts": [artifact_view(one) for one in result.artifacts],
        "hosts": hosts[:10],
        "next": result.next,
    }


@routes.get("/search")
@routes.get("/search.json")
async def search_page(request: Request, caller: Reader) -> Response:
    """Show what fits; a whole id leads to its page."""
    answer = await show(request, caller, "search", "Search", found)
    text = request.query_params.get("q", "").strip().lower()
    if request.url.path.endswith(".json") or len(text) != 36:
        return answer
    view = await found(request.app.state.service, caller, request)
    for kind, name in (("jobs", "job_id"), ("artifacts", "artifact_id")):
        if any(one[name] == text for one in view[kind]):
            return RedirectResponse(f"/{kind}/{text}", 303)
    return answer
