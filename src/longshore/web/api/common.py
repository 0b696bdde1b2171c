"""Code shared by all API routes."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import Field

from longshore.web.api.models import Id, ProblemOut
from longshore.web.problems import MEDIA_TYPE, Problem
from longshore.web.service import Service

_PROBLEMS = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden by the token's scopes",
    404: "Not found in this tenant and project",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    422: "Unprocessable content",
    429: "Too many requests",
    503: "Service unavailable",
}


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Describe the error responses."""
    content = {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{ProblemOut.__name__}"}}}
    return {
        code: {"description": _PROBLEMS[code], "content": content} for code in sorted({400, 401, 403, 429, 503, *codes})
    }


def router(tag: str, *codes: int) -> APIRouter:
    """Return a router of the API."""
    return APIRouter(prefix="/api/v1", tags=[tag], responses=problems(*codes))


def service_of(request: Request) -> Service:
    """Return the service behind a request."""
    service: Service = request.app.state.service
    return service


def page_limit(request: Request, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> int:
    """Return the page size, within the server's limits."""
    return min(limit, service_of(request).settings.max_page)


Serving = Annotated[Service, Depends(service_of)]
Limit = Annotated[int, Depends(page_limit)]
After = Annotated[str | None, Query(max_length=1024, description="cursor: `next` of the previous page")]
Wait = Annotated[float, Query(ge=0, le=60, description="seconds to wait for the job to end")]
RequestKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="the same key with the same body returns the first response again",
    ),
]
PathId = Id
Labels = Annotated[list[Annotated[str, Field(max_length=1024, pattern="^[^=]+=")]] | None, Query(max_length=8)]
Metadata = Annotated[Labels, Query(description="`name=value` at the top level of an artifact's metadata; repeatable")]
Parameter = Annotated[Labels, Query(description="`name=value` at the top level of a job's parameters; repeatable")]


def labels(given: list[str] | None) -> dict[str, str] | None:
    """Split `name=value` pairs."""
    return dict(one.split("=", 1) for one in given) if given else None


def request_id(request: Request) -> str:
    """Return the id under which a request is logged."""
    return str(request.state.request_id)


def fingerprint(*parts: bytes | str) -> str:
    """Hash a request, to distinguish a repeated request from another one with the same key."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def not_found(what: str) -> Problem:
    """Return a 404; the text is the same for unknown items and for items of other tenants."""
    return Problem(404, "not_found", f"no such {what}")
