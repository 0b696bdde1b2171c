"""Errors as `application/problem+json` (RFC 9457) with the program's own reasons. No traceback ever leaves."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from longshore import errors

log = logging.getLogger("longshore.web")

MEDIA_TYPE: Final = "application/problem+json"
Shown = Callable[[Scope, Response], Response]

# The first that fits: error class, HTTP status, reason.
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
    400: "The request cannot be read",
    401: "A valid token is needed",
    403: "Not permitted",
    404: "There is no such thing here",
    405: "Not a method of this resource",
    406: "Not available in that form",
    409: "Something else holds this place",
    411: "A length is needed",
    412: "It changed in the meantime",
    413: "Too large",
    415: "Not a type this resource takes",
    416: "No such range",
    421: "Not a name of this service",
    422: "The request is understood but not acceptable",
    429: "Too many requests",
    431: "Headers too large",
    500: "A mistake of ours",
    503: "Not available now",
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
    """An answer that is no success, raised where it is found."""

    def __init__(
        self, status: int, reason: str, detail: str, *, headers: dict[str, str] | None = None, **extra: Any
    ) -> None:
        super().__init__(detail)
        self.status, self.reason, self.detail = status, reason, detail
        self.headers, self.extra = headers or {}, extra


def problem_body(status: int, reason: str, detail: str, extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """Write one problem document."""
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
    """Make the HTTP answer of one problem."""
    body = json.dumps(problem_body(status, reason, detail, extra)).encode()
    return Response(body, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def answer_for(error: Exception) -> Response:
    """Translate an error of ours; what is not in the table is a mistake of ours and says nothing but its debug id."""
    if isinstance(error, Problem):
        return problem_answer(error.status, error.reason, error.detail, headers=error.headers, **error.extra)
    for kind, status, reason in _TABLE:
        if isinstance(error, kind):
            extra = {"hint": error.hint} if isinstance(error, errors.LongshoreError) and error.hint else {}
            headers = {"Retry-After": "5"} if status == 503 else None
            return problem_answer(status, reason, str(error), headers=headers, **extra)
    if isinstance(error, errors.Reasoned):
        return problem_answer(422, error.reason, str(error))
    debug_id = secrets.token_hex(8)
    log.error("unexpected error, debug id %s", debug_id, exc_info=error)
    return problem_answer(500, "internal_error", "an unexpected error; see the log", debug_id=debug_id)


def _fields(error: RequestValidationError) -> list[dict[str, str]]:
    # Only where and what: the input itself may carry secrets, and `ctx` may hold anything.
    return [
        {"field": ".".join(str(part) for part in item.get("loc", ()))[:200], "message": str(item.get("msg", ""))[:300]}
        for item in error.errors()[:20]
    ]


def install(app: FastAPI, shown: Shown) -> None:
    """Make every failure of the app a problem document, shown as the one who asked can read it."""

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
