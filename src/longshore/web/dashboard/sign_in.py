"""Sign in to and out of the dashboard. The cookie holds a separate session, never the token."""

from __future__ import annotations

import hmac
import time
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import Headers

from longshore.domain.model import Scope
from longshore.domain.policy.tokens import API_PREFIX, SESSION_PREFIX, Token, allows
from longshore.ledger.operations import audit_log, tokens
from longshore.ledger.transaction import Tx
from longshore.web.dashboard.pages import templates
from longshore.web.security.auth import (
    COOKIE,
    FIRST_RUN,
    SECURE_COOKIE,
    Reader,
    act,
    check_site,
    credentials,
    find,
    form,
    inside,
    is_secure,
    refused,
    remote,
    too_many,
)
from longshore.web.service import Service

routes = APIRouter(include_in_schema=False)

WRONG: Final = "That token is not valid."
ONLY_METRICS: Final = (
    "That token reads /metrics and nothing else. The dashboard needs one with the scope read, write or admin."
)


def _form_page(request: Request, *, error: str = "", code: str | None = None, status: int = 200) -> HTMLResponse:
    values = {
        "title": "Sign in",
        "error": error,
        "code": code,
        "csrf": "",
        "next": inside(request.query_params.get("next") or form(request.scope).get("next", "/")),
    }
    return HTMLResponse(templates.get_template("sign-in.html").render(values), status)


async def _open(service: Service, request: Request, token: Token | None, target: str) -> Response:
    scope = token.scope if token else Scope()
    scopes = sorted(token.scopes) if token else ["admin"]
    who = token.token_id if token else FIRST_RUN
    secure = is_secure(request.scope, service.settings)
    given, _ = credentials(Headers(raw=[pair for pair in request.headers.raw if pair[0] == b"cookie"]), secure=secure)
    known = await find(service, given, SESSION_PREFIX)
    before = known[0].token_id if known else None
    line = audit_log.NewEntry(who, "sign-in", "/sign-in", remote(request.scope)[:64])

    def opened(tx: Tx) -> str:
        if before is not None:
            tokens.revoke_token(tx, before)  # signing in again leaves no session open
        made = tokens.open_session(tx, token, scope, scopes, service.settings.session_s)
        audit_log.audit(tx, scope, line)
        return made

    secret = await service.ledger.write_async(opened)
    answer = RedirectResponse(target, 303)
    answer.set_cookie(
        SECURE_COOKIE if secure else COOKIE,
        secret,
        max_age=int(service.settings.session_s),
        httponly=True,
        samesite="strict",
        secure=secure,
        path="/",
    )
    return answer


@routes.get("/sign-in")
async def sign_in_page(request: Request) -> Response:
    """Show the sign-in form."""
    return _form_page(request)


@routes.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Open a session with a token."""
    check_site(request.headers)  # no session and no CSRF token yet: prevent login CSRF
    service: Service = request.app.state.service
    fields = form(request.scope)
    found = await find(service, fields.get("token", "").strip(), API_PREFIX)
    if found is None:
        await refused(service, "sign-in refused", request.scope)
        return _form_page(request, error=WRONG, status=401)
    if not allows(found[0].scopes, "read"):
        return _form_page(request, error=ONLY_METRICS, status=403)
    assert service.sign_ins is not None
    if wait := service.sign_ins.take(found[0].token_id, time.monotonic()):
        raise too_many(wait, "too many sign-ins with this token")
    return await _open(service, request, found[0], inside(fields.get("next", "/")))


@routes.get("/first")
async def first_page(request: Request, code: str = "") -> Response:
    """Show the first-run link's button, so that a link preview does not use up the code."""
    return _form_page(request, code=code[:200])


async def _first_code(service: Service) -> str | None:
    """Return the code of the first-run link while it opens: for a while, and until a token exists."""
    over = time.monotonic() > service.first_until
    if over or not (service.first_always or not await service.ledger.read_async(tokens.has_api_token)):
        service.first_code = None
    return service.first_code


@routes.post("/first")
async def first(request: Request) -> Response:
    """Open the operator's session with the one-time code."""
    check_site(request.headers)
    service: Service = request.app.state.service
    code, given = await _first_code(service), form(request.scope).get("code", "")
    if code is None or not hmac.compare_digest(code.encode(), given.encode("utf-8", "replace")):
        await refused(service, "sign-in refused", request.scope)
        return _form_page(
            request,
            error="This link was used already, is too old, or is not the newest one. `longshore token create` makes a token.",
            status=401,
        )
    service.first_code = None
    return await _open(service, request, None, "/")


@routes.post("/sign-out")
async def sign_out(request: Request, caller: Reader) -> Response:
    """Close the session, here and in the ledger."""
    service: Service = request.app.state.service
    caller.noted.update(act="sign out")
    if caller.token.kind == "session":
        await act(service, caller, tokens.revoke_token, caller.token.token_id, note=lambda _: {})
    answer = RedirectResponse("/sign-in", 303)
    secure = is_secure(request.scope, service.settings)
    name = SECURE_COOKIE if secure else COOKIE
    answer.delete_cookie(name, path="/", httponly=True, samesite="strict", secure=secure)
    return answer
