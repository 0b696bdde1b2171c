"""Errors as `application/problem+json` (RFC 9457) with the program's own reasons. Tracebacks are never sent."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Scope

from longshore import errors

log = logging.getLogger("longshore.web")

MEDIA_TYPE: Final = "application/problem+json"
Shown = Callable[[Scope, Response], Response]

# The first match applies: error class, HTTP status, reason.
_TABLE: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (errors.NotFound, 404, "not_found"),
    (errors.NotPermitted, 403, "forbidden"),
    (errors.NotAUrl, 422, "bad_url"),
    (errors.ResultTooLarge, 413, "too_large"),
    (errors.BadInput, 422, "bad_input"),
    (errors.Conflict, 409, "conflict"),
    (errors.InvalidTransition, 409, "invalid_transition"),
    (errors.LeaseLost, 409, "lease_lost"),
    (errors.EffectInDoubt, 409, "in_doubt"),
    (errors.Locked, 503, "locked"),
    (errors.Unavailable, 503, "ledger_unavailable"),
    (errors.StoreUnavailable, 503, "store_unavailable"),
    (errors.OverBudget, 403, "quota_exceeded"),
)

_TITLES: Final = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Not permitted",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "Request timeout",
    409: "Conflict",
    411: "Length required",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    416: "Range not satisfiable",
    421: "Misdirected request",
    422: "Unprocessable content",
    429: "Too many requests",
    431: "Headers too large",
    500: "Internal error",
    503: "Service unavailable",
}
_WORDS: Final = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "body_too_large",
    415: "unsupported_type",
    416: "range_not_satisfiable",
    422: "bad_input",
    429: "too_many_requests",
}


class Problem(Exception):
    """An error response, raised where the error is detected."""

    def __init__(
        self, status: int, reason: str, detail: str, *, headers: dict[str, str] | None = None, **extra: Any
    ) -> None:
        super().__init__(detail)
        self.status, self.reason, self.detail = status, reason, detail
        self.headers, self.extra = headers or {}, extra


def problem_body(status: int, reason: str, detail: str, extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return one problem document."""
    return {
        "type": f"urn:longshore:problem:{reason}",
        "title": _TITLES.get(status, "Not done"),
        "status": status,
        "detail": detail,
        "reason": reason,
        **(extra or {}),
    }


def problem_answer(
    status: int, reason: str, detail: str, *, headers: dict[str, str] | None = None, **extra: Any
) -> Response:
    """Return the HTTP response of one problem."""
    body = json.dumps(problem_body(status, reason, detail, extra)).encode()
    return Response(body, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def answer_for(error: Exception) -> Response:
    """Translate an exception; one that is not in the table becomes a 500 that contains only its debug id."""
    if isinstance(error, Problem):
        return problem_answer(error.status, error.reason, error.detail, headers=error.headers, **error.extra)
    for kind, status, reason in _TABLE:
        if isinstance(error, kind):
            extra = {"hint": error.hint} if isinstance(error, errors.LongshoreError) and error.hint else {}
            headers = {"Retry-After": "5"} if status == 503 else None
            return problem_answer(status, reason, str(error), headers=headers, **extra)
    if isinstance(error, ClientDisconnect):  # the client is gone; this is not an error of the service
        return problem_answer(400, "bad_request", "the request ended early")
    if isinstance(error, errors.Reasoned):
        return problem_answer(422, error.reason, str(error))
    debug_id = secrets.token_hex(8)
    log.error("unexpected error, debug id %s", debug_id, exc_info=error)
    return problem_answer(500, "internal_error", "an unexpected error; see the log", debug_id=debug_id)


def _fields(error: RequestValidationError) -> list[dict[str, str]]:
    # Only location and message: the input may contain secrets, and `ctx` may hold anything.
    return [
        {"field": ".".join(str(part) for part in item.get("loc", ()))[:200], "message": str(item.get("msg", ""))[:300]}
        for item in error.errors()[:20]
    ]


def install(app: FastAPI, shown: Shown) -> None:
    """Turn every exception of the app into a problem document, or a page for browsers."""

    async def validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        fields = _fields(error)
        unreadable = any(item.get("type") == "json_invalid" for item in error.errors())
        status, reason = (400, "bad_request") if unreadable else (422, "bad_input")
        said = "; ".join(f"{item['field']}: {item['message']}" for item in fields[:3])
        return shown(request.scope, problem_answer(status, reason, said or "not acceptable", fields=fields))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status = error.status_code
        answer = problem_answer(
            status, _WORDS.get(status, "refused"), str(error.detail), headers=dict(error.headers or {})
        )
        return shown(request.scope, answer)

    async def ours(request: Request, error: Exception) -> Response:
        return shown(request.scope, answer_for(error))

    app.add_exception_handler(RequestValidationError, validation)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Problem, ours)
    app.add_exception_handler(errors.LongshoreError, ours)
