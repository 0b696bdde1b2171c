"""What all routes of the API have in common."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request

from longshore.web.models import Id, ProblemOut
from longshore.web.problems import MEDIA_TYPE, Problem
from longshore.web.service import Service

_PROBLEMS = {
    400: "The request cannot be read",
    401: "No valid token",
    403: "The token's scopes do not allow this",
    404: "There is no such thing in this tenant and project",
    409: "Something else holds this place",
    413: "Too large",
    415: "Not a type this resource takes",
    422: "Understood, but not acceptable",
    429: "Too many requests",
    503: "Not available now",
}


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Describe the answers that are no success."""
    content = {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{ProblemOut.__name__}"}}}
    return {
        code: {"description": _PROBLEMS[code], "content": content} for code in sorted({400, 401, 403, 429, 503, *codes})
    }


def router(tag: str, *codes: int) -> APIRouter:
    """Make a router of the API."""
    return APIRouter(prefix="/api/v1", tags=[tag], responses=problems(*codes))


def service_of(request: Request) -> Service:
    """Give the service behind a request."""
    service: Service = request.app.state.service
    return service


def page_limit(request: Request, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> int:
    """Give the page size, within what this server allows."""
    return min(limit, service_of(request).settings.max_page)


Serving = Annotated[Service, Depends(service_of)]
Limit = Annotated[int, Depends(page_limit)]
After = Annotated[str | None, Query(max_length=1024, description="cursor: `next` of the page before")]
Wait = Annotated[float, Query(ge=0, le=60, description="seconds to wait for the job to be over")]
RequestKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="the same key with the same body gets the first answer again",
    ),
]
PathId = Id


def request_id(request: Request) -> str:
    """Give the id under which a request is logged."""
    return str(request.state.request_id)


def fingerprint(*parts: bytes | str) -> str:
    """Hash what was asked, to tell a repeated request from another one with the same key."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def not_found(what: str) -> Problem:
    """Say that there is nothing; the same words for what never was and for what is somebody else's."""
    return Problem(404, "not_found", f"there is no such {what}")
