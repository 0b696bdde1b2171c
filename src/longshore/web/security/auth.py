"""Authentication: every request is rejected here unless its path is public or it has a valid token.

A token comes as `Authorization: Bearer`, as `X-Api-Key`, or as the dashboard's session cookie. A request that changes
data and is authenticated by cookie must also prove that a page of this dashboard sent it.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from longshore.domain.model import Micros, Scope
from longshore.domain.policy.tokens import API_PREFIX, SESSION_PREFIX, Token, allows, csrf_token, secret_hash
from longshore.errors import LedgerError
from longshore.ledger.operations import audit_log, tokens
from longshore.ledger.transaction import Tx
from longshore.web.problems import Problem, answer_for
from longshore.web.security.bodies import Bodies
from longshore.web.security.rate_limit import Throttle
from longshore.web.server_options import ServerOptions
from longshore.web.service import Service

log = logging.getLogger("longshore.web")
T = TypeVar("T")

COOKIE: Final = "longshore_session"
SECURE_COOKIE: Final = "__Host-" + COOKIE  # no other host and no page without TLS can set it
PUBLIC: Final = frozenset({"/livez", "/readyz", "/sign-in", "/first", "/favicon.ico"})
ALWAYS_ANSWERED: Final = "/livez"
PUBLIC_FOLDER: Final = "/static/"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
FIRST_RUN: Final = "first-run link"
NOBODY: Final = Scope("", "")
BACK_MOST: Final = 2000  # characters of a query string that are kept during a sign-in


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: one token's tenant, project and scopes."""

    token: Token
    now: Micros  # the ledger's time when the token was looked up
    csrf: str | None = None  # only for a session
    noted: dict[str, Any] = field(default_factory=dict, compare=False)  # what a route did, for the audit log
    held: ExitStack = field(default_factory=ExitStack, compare=False)  # shares that end with the request
    line: audit_log.NewEntry | None = None  # of this request, for the audit log
    acted: list[bool] = field(default_factory=list, compare=False)  # an act was written together with its line

    @property
    def who(self) -> str:
        """Return the token id for the audit log; for a session, that of the token that opened it."""
        token = self.token
        return (token.parent_id or FIRST_RUN) if token.kind == "session" else token.token_id

    @property
    def scope(self) -> Scope:
        """The tenant and project that the caller is confined to."""
        return self.token.scope

    def may(self, needed: str) -> bool:
        """Return whether the caller has a scope."""
        return allows(self.token.scopes, needed)


def is_public(path: str) -> bool:
    """Return whether a path is served without a token."""
    return path in PUBLIC or path.startswith(PUBLIC_FOLDER)


def credentials(headers: Headers, *, secure: bool = False) -> tuple[str, bool]:
    """Return the secret of a request, and whether it came by cookie."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and given.strip():
        return given.strip(), False
    if key := headers.get("x-api-key"):
        return key.strip(), False
    return cookie_parser(headers.get("cookie", "")).get(SECURE_COOKIE if secure else COOKIE, ""), True


def is_secure(scope: AsgiScope, settings: ServerOptions) -> bool:
    """Return whether the client speaks TLS, to us or to a proxy."""
    return scope["scheme"] == "https" or settings.secure_cookies


def remote(scope: AsgiScope) -> str:
    """Return the client's address."""
    client = scope.get("client")
    return str(client[0]) if client else "local"


class Access:
    """The middleware that authenticates, throttles and writes the audit log."""

    def __init__(self, app: ASGIApp, service: Service, bodies: Bodies) -> None:
        self.app, self.service, self.bodies = app, service, bodies
        settings = service.settings
        self.rate = Throttle(settings.rate_per_s, settings.rate_burst)
        self.wrong = Throttle(settings.wrong_per_minute / 60, settings.wrong_per_minute)
        service.wrong = self.wrong
        service.sign_ins = Throttle(settings.sign_ins_per_minute / 60, settings.sign_ins_per_minute)
        self._used: dict[str, int] = {}
        self._tasks: set[asyncio.Future[Any]] = set()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve one request if its token allows it."""
        headers = Headers(scope=scope)
        if scope["type"] != "http" or scope["path"] == ALWAYS_ANSWERED:
            await self.app(scope, receive, send)
            return
        if scope["state"].get("extra"):
            raise Problem(503, "busy", "too many connections", headers={"Retry-After": "5", "Connection": "close"})
        if is_public(scope["path"]):
            await self.app(scope, await self._body_of_stranger(scope, headers, receive), send)
            return
        secret, by_cookie = credentials(headers, secure=is_secure(scope, self.service.settings))
        if not secret and wants_page(scope, headers):
            await to_sign_in(scope)(scope, receive, send)
            return
        try:
            caller = await self.caller(scope, secret, by_cookie)
            caller = replace(caller, line=_line(caller, scope))
        except Problem as problem:
            if problem.status == 401 and by_cookie and wants_page(scope, headers):
                await to_sign_in(scope)(scope, receive, send)
                return
            raise
        with caller.held:
            self.service.requests.admit(caller)
            bounded = await self.bodies.bounded(scope, headers, receive, anonymous=False)
            if by_cookie and scope["method"] not in SAFE:
                check_csrf(scope, headers, caller)
            scope["state"]["caller"] = caller
            self._note_use(caller.token, caller.now)
            await self.app(scope, bounded, self._audited(scope, caller, send))

    async def _body_of_stranger(self, scope: AsgiScope, headers: Headers, receive: Receive) -> Receive:
        """Read a body without a token: a small one, soon, and few at a time, so that they do not take all places."""
        strangers, address, settings = self.service.strangers, remote(scope), self.service.settings
        if scope["method"] in SAFE:
            return await self.bodies.bounded(scope, headers, receive, anonymous=True)
        if (
            strangers.total() >= settings.anonymous_bodies
            or strangers[address] >= settings.anonymous_bodies_per_address
        ):
            raise Problem(503, "busy", "too many requests without a token", headers={"Retry-After": "5"})
        strangers[address] += 1
        try:
            async with asyncio.timeout(settings.head_timeout_s):
                return await self.bodies.bounded(scope, headers, receive, anonymous=True)
        except TimeoutError:
            raise Problem(408, "too_slow", "the body came too slowly", headers={"Connection": "close"}) from None
        finally:
            strangers[address] -= 1
            if not strangers[address]:
                del strangers[address]

    async def caller(self, scope: AsgiScope, secret: str, by_cookie: bool) -> Caller:
        """Look up the caller of a secret; unknown, expired and revoked secrets get the same response."""
        found = await find(self.service, secret, SESSION_PREFIX if by_cookie else API_PREFIX)
        if found is None:
            if secret:
                await refused(self.service, "wrong token", scope)
            raise Problem(
                401, "unauthorized", "a valid token is needed", headers={"WWW-Authenticate": 'Bearer realm="longshore"'}
            )
        token, now = found
        if by_cookie and self._idles(token, now):
            raise Problem(401, "unauthorized", "the session was not used for long; sign in again")
        if wait := self.rate.take(token.root_id, time.monotonic()):
            raise too_many(wait, "too many requests with this token")
        return Caller(token, now, csrf_token(secret) if by_cookie else None)

    def _idles(self, token: Token, now: Micros) -> bool:
        """Return whether a session was not used for too long. Its use is written once a minute."""
        idle_s = self.service.settings.session_idle_s
        return bool(idle_s) and now - (token.last_used_at or token.created_at) > idle_s * 1_000_000

    def _note_use(self, token: Token, now: Micros) -> None:
        # Coalesced: a token in use causes one small write a minute, not one per request.
        self._note(token.token_id, now)
        if token.parent_id is not None:  # use of a session counts as use of its token
            self._note(token.parent_id, now)

    def _note(self, used: str, now: Micros) -> None:
        if now - self._used.get(used, 0) < self.service.settings.used_every_s * 1_000_000:
            return
        if len(self._used) > 10_000:
            self._used.clear()
        self._used[used] = now
        self._behind(self.service.ledger.write_async(tokens.touch_token, used, now))

    def _behind(self, future: asyncio.Future[Any]) -> None:
        self._tasks.add(future)
        future.add_done_callback(self._finished)

    def _finished(self, future: asyncio.Future[Any]) -> None:
        self._tasks.discard(future)
        if not future.cancelled() and (error := future.exception()):
            log.warning("a token's last use was not written: %s", error)

    def _audited(self, scope: AsgiScope, caller: Caller, send: Send) -> Send:
        # Written before the response is sent: every acknowledged change is in the log.
        if scope["method"] in SAFE:
            return send

        withheld = False

        async def recorded(message: Message) -> None:
            nonlocal withheld
            begins = message["type"] == "http.response.start" and not caller.noted.get("only_asked")
            if begins and (not caller.acted or message["status"] >= 400):
                try:
                    await write_line(self.service, caller, {"status": message["status"], **caller.noted})
                except Problem as problem:  # said in place of the answer: the caller of `send` cannot say it any more
                    withheld = True
                    await answer_for(problem)(scope, no_body, send)
            if not withheld:
                await send(message)

        return recorded


async def no_body() -> Message:
    """Receive nothing."""
    return {"type": "http.request", "body": b"", "more_body": False}


async def record(
    service: Service, scope: Scope, token_id: str, action: str, target: str, where: str, detail: dict[str, Any]
) -> None:
    """Write one audit log entry; without it there is no answer but 503."""
    await _written(service, scope, _entry(token_id, action, target, where, detail))


def _entry(token_id: str, action: str, target: str, where: str, detail: dict[str, Any]) -> audit_log.NewEntry:
    return audit_log.NewEntry(
        token_id=token_id, action=action, target=printable(target)[:500], remote=where[:64], detail=detail
    )


def _line(caller: Caller, scope: AsgiScope) -> audit_log.NewEntry:
    detail = {"request_id": scope["state"]["request_id"]}
    return _entry(caller.who, scope["method"].lower(), scope["path"], remote(scope), detail)


async def _written(service: Service, scope: Scope, entry: audit_log.NewEntry) -> None:
    try:
        await service.ledger.write_async(audit_log.audit, scope, entry)
    except LedgerError as error:
        log.error("the audit log did not take %s %s: %s", entry.action, entry.target, error)
        raise Problem(503, "audit_unavailable", "the audit log cannot be written, so this is not answered") from error


def line_of(caller: Caller, detail: dict[str, Any]) -> audit_log.NewEntry:
    """Return the line of a request with what it did."""
    assert caller.line is not None
    return replace(caller.line, detail={**caller.line.detail, **detail})


async def write_line(service: Service, caller: Caller, detail: dict[str, Any]) -> None:
    """Write a line of the audit log that belongs to no transaction: a refusal, a read, an act outside of the ledger."""
    await _written(service, caller.scope, line_of(caller, detail))


async def act(
    service: Service, caller: Caller, verb: Callable[..., T], *args: Any, note: Callable[[T], dict[str, Any]], **kw: Any
) -> T:
    """Run a verb and write its line of the audit log in one transaction: neither is there without the other."""

    def acting(tx: Tx) -> T:
        result = verb(tx, *args, **kw)
        caller.noted.update(note(result))
        audit_log.audit(tx, caller.scope, line_of(caller, {"status": 200, **caller.noted}))
        return result

    result: T = await service.ledger.write_async(acting)
    caller.acted.append(True)
    return result


async def refused(service: Service, what: str, scope: AsgiScope) -> None:
    """Record a request without a valid token in the operator's project, since it belongs to no tenant.

    Only failures count, and only requests with wrong tokens are throttled: a client that fails often must not lock out
    others behind the same address (a proxy's). The throttle bounds the entries per address; the attempted secret is
    never written.
    """
    assert service.wrong is not None
    if wait := service.wrong.take(remote(scope), time.monotonic()):
        raise too_many(wait, "too many wrong tokens from this address")
    log.warning("%s from %s at %s", what, remote(scope), printable(scope["path"])[:200])
    detail = {"status": 401, "request_id": scope["state"]["request_id"]}
    await record(service, Scope(), "nobody", what, scope["path"], remote(scope), detail)


def printable(text: str) -> str:
    """Replace control characters, which could forge log lines or change a terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


async def find(service: Service, secret: str, prefix: str) -> tuple[Token, Micros] | None:
    """Look up a valid token. The lookup is by hash, so its timing reveals nothing about the secret."""
    if not secret.startswith(prefix) or len(secret) > 200:
        return None
    found: tuple[Token, Micros] | None = await service.ledger.read_async(tokens.living_token, secret_hash(secret))
    return found


def too_many(wait_s: float, detail: str) -> Problem:
    """Return a 429 problem with Retry-After."""
    return Problem(429, "too_many_requests", detail, headers={"Retry-After": str(max(1, math.ceil(wait_s)))})


def wants_page(scope: AsgiScope, headers: Headers) -> bool:
    """Return whether a browser should be redirected to the sign-in page."""
    return scope["method"] in ("GET", "HEAD") and reads_pages(scope, headers)


def reads_pages(scope: AsgiScope, headers: Headers) -> bool:
    """Return whether a browser shows the response; the API and the `.json` variants are for programs."""
    path = scope["path"]
    return "text/html" in headers.get("accept", "") and not path.startswith("/api/") and not path.endswith(".json")


def inside(target: str) -> str:
    """Keep a redirect on this site: one leading slash, no second one, no backslash, no control character."""
    safe = target.startswith("/") and target[1:2] not in ("/", "\\") and target.isprintable() and "\\" not in target
    return target if safe else "/"


def to_sign_in(scope: AsgiScope) -> RedirectResponse:
    """Redirect to the sign-in page, and from there back to the same page."""
    asked = scope.get("query_string", b"").decode("latin-1")
    back = quote(scope["path"]) + (f"?{asked}" if asked and len(asked) <= BACK_MOST else "")
    return RedirectResponse("/sign-in?next=" + quote(back), 303)


def split_url(text: str) -> SplitResult:
    """Split a URL from a header; one that is not valid, such as `http://[`, has no parts."""
    try:
        return urlsplit(text)
    except ValueError:
        return SplitResult("", "", "", "", "")


def check_site(headers: Headers) -> None:
    """Reject requests that a browser sends for another site's page, by one of three headers (none: not a browser)."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Problem(403, "csrf", "this request came from another site")
    sender = headers.get("origin") or headers.get("referer")
    if sender and split_url(sender).netloc.lower() != headers.get("host", "").lower():
        raise Problem(403, "csrf", "this request came from another site")


def check_csrf(scope: AsgiScope, headers: Headers, caller: Caller) -> None:
    """Reject a change that was not sent by a page of this dashboard."""
    check_site(headers)
    given = headers.get("x-csrf-token") or form_field(scope, headers, "csrf")
    if not hmac.compare_digest(given.encode(), (caller.csrf or "-").encode()):
        raise Problem(403, "csrf", "the CSRF token is missing or wrong; reload the page")


def form_field(scope: AsgiScope, headers: Headers, name: str) -> str:
    """Return one field of the form that the middleware has read."""
    if not headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return ""
    return form(scope).get(name, "")


def form(scope: AsgiScope) -> dict[str, str]:
    """Parse the form that the middleware has read; the last of several values of a name counts."""
    body: bytes = scope["state"].get("body", b"")
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1000)
    return {key: values[-1] for key, values in fields.items()}


_bearer = HTTPBearer(auto_error=False, description="A token of `longshore token create`.", scheme_name="token")


class Needs:
    """The scope that a route requires. A test checks that every route has one."""

    def __init__(self, right: str) -> None:
        self.right = right

    def __call__(self, request: Request, _: Annotated[Any, Depends(_bearer)] = None) -> Caller:
        """Return the caller, or raise a problem."""
        caller: Caller = request.state.caller
        if not caller.may(self.right):
            raise Problem(403, "forbidden", f"this needs the scope {self.right!r}")
        return caller


Reader = Annotated[Caller, Depends(Needs("read"))]
Writer = Annotated[Caller, Depends(Needs("write"))]
Admin = Annotated[Caller, Depends(Needs("admin"))]
Scraper = Annotated[Caller, Depends(Needs("metrics"))]
