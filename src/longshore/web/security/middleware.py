"""Checks of every request before its route, and headers after it: host, security headers.

A pure ASGI middleware, so that event streams and uploads pass through unbuffered.
"""

from __future__ import annotations

import logging
import re
import secrets
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longshore.domain.policy.forwarded import client_of, is_trusted, networks
from longshore.web.problems import Problem, Shown, answer_for
from longshore.web.server_options import ServerOptions, is_loopback

log = logging.getLogger("longshore.web")

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HSTS: Final = "max-age=31536000"
_PLAIN_HOST = re.compile(r"[A-Za-z0-9.-]{1,255}(?::[0-9]{1,5})?\Z")
SECURITY: Final = (
    ("content-security-policy", CSP),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
)
ASKED_BY_MACHINES: Final = frozenset({"/livez", "/readyz"})  # probes use any address as Host
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")


def is_ours(host: str, settings: ServerOptions) -> bool:
    """Return whether `Host` is a name of this service.

    A foreign site can point its own name at this machine (DNS rebinding); a browser then treats its pages as
    same-origin, but their requests have the foreign name in `Host`.
    """
    if not host or not (settings.names or is_loopback(settings.host)):
        return True
    name = host.lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return is_loopback(name) or name in {settings.host.lower(), *(known.lower() for known in settings.names)}


class Guard:
    """The outermost middleware."""

    def __init__(self, app: ASGIApp, settings: ServerOptions, shown: Shown) -> None:
        self.app, self.settings, self.shown = app, settings, shown
        self.proxies = networks(settings.trusted_proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request within the limits."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if self.proxies and scope.get("client"):
            self._behind_proxy(scope, headers)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.match(given) else secrets.token_hex(12)
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def dressed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                dress(message, request_id, headers.get("host", ""), secure=scope["scheme"] == "https")
            await send(message)

        try:
            if scope["path"] not in ASKED_BY_MACHINES and not is_ours(headers.get("host", ""), self.settings):
                raise Problem(421, "unknown_host", "this service has another name; see the setting `serve.names`")
            await self.app(scope, receive, dressed)
        except Exception as error:
            if started:
                raise  # the response has started: closing the connection shows that it is incomplete
            await self._problem(scope, answer_for(error))(scope, receive, dressed)

    def _behind_proxy(self, scope: Scope, headers: Headers) -> None:
        """Take the client's address and scheme from a trusted proxy's headers."""
        peer, port = scope["client"]
        if not is_trusted(peer, self.proxies):
            return
        scope["client"] = (client_of(peer, ",".join(headers.getlist("x-forwarded-for")), self.proxies), port)
        if headers.get("x-forwarded-proto", "").strip().lower() == "https":
            scope["scheme"] = "https"

    def _problem(self, scope: Scope, answer: Response) -> Response:
        try:
            return self.shown(scope, answer)
        except Exception:  # an error page that cannot be made must not cost the answer its security headers
            log.exception("the page of an error could not be made")
            return answer


def dress(message: Message, request_id: str, host: str = "", *, secure: bool = False) -> None:
    """Add the security headers to a response. Scripts come from /static/ only: what a tenant stored is never one."""
    headers = MutableHeaders(scope=message)
    for name, value in SECURITY:
        if name not in headers:
            headers[name] = value
    if _PLAIN_HOST.match(host) and headers["content-security-policy"] == CSP:
        headers["content-security-policy"] = CSP.replace("script-src 'self'", f"script-src {host}/static/")
    if secure:
        headers["strict-transport-security"] = HSTS
    if "cache-control" not in headers:
        headers["cache-control"] = "no-store"
    headers["x-request-id"] = request_id
