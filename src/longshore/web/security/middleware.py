"""Checks of every request before its route, and headers after it: host, size, JSON depth, security headers.

A pure ASGI middleware, so that event streams and uploads pass through unbuffered.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import secrets
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longshore.web.problems import Problem, Shown, answer_for
from longshore.web.server_options import ServerOptions

log = logging.getLogger("longshore.web")

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
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
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # an unclosed string runs to the end: one pass
_BRACKETS = re.compile(rb"[\[\]{}]")


def json_depth(body: bytes, limit: int) -> int:
    """Return the nesting depth of JSON without parsing it; stop one past the limit."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        if depth > deepest:
            deepest = depth
            if deepest > limit:
                break
    return deepest


def check_json(body: bytes, max_depth: int) -> None:
    """Refuse JSON that nests too deep, or whose depth is not seen: the parser also takes UTF-16 and UTF-32."""
    if not json.detect_encoding(body).startswith("utf-8"):
        raise Problem(400, "bad_request", "JSON is sent as UTF-8")
    if json_depth(body, max_depth) > max_depth:
        raise Problem(400, "too_deep", f"JSON may nest {max_depth} levels")


def collected(headers: Headers) -> bool:
    """Return whether a body of this type is read completely before the route runs (JSON and forms, which are small)."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind in ("application/json", "application/x-www-form-urlencoded") or kind.endswith("+json")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


async def whole_body(receive: Receive, limit: int) -> bytes:
    """Read a body up to the limit."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Problem(400, "bad_request", "the request ended early")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise Problem(413, "body_too_large", f"at most {limit} bytes are accepted here")
        if not message.get("more_body"):
            return b"".join(parts)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that replays a body that was read already."""
    pending = [True]

    async def again() -> Message:
        if pending:
            pending.clear()
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again


def counted(receive: Receive, limit: int) -> Receive:
    """Abort a streamed body that exceeds its limit."""
    seen = 0

    async def count() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise Problem(413, "body_too_large", f"at most {limit} bytes are accepted here")
        return message

    return count


class Guard:
    """The outermost middleware."""

    def __init__(self, app: ASGIApp, settings: ServerOptions, body_limit: Callable[[str], int], shown: Shown) -> None:
        self.app, self.settings, self.body_limit, self.shown = app, settings, body_limit, shown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request within the limits."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.match(given) else secrets.token_hex(12)
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def dressed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                dress(message, request_id)
            await send(message)

        try:
            if scope["path"] not in ASKED_BY_MACHINES and not is_ours(headers.get("host", ""), self.settings):
                raise Problem(421, "unknown_host", "this service has another name; see the setting `serve.names`")
            await self.app(scope, await self._bounded(scope, headers, receive), dressed)
        except Exception as error:
            if started:
                raise  # the response has started: closing the connection shows that it is incomplete
            await self._problem(scope, answer_for(error))(scope, receive, dressed)

    def _problem(self, scope: Scope, answer: Response) -> Response:
        try:
            return self.shown(scope, answer)
        except Exception:  # an error page that cannot be made must not cost the answer its security headers
            log.exception("the page of an error could not be made")
            return answer

    async def _bounded(self, scope: Scope, headers: Headers, receive: Receive) -> Receive:
        streamed = not collected(headers)
        limit = self.body_limit(scope["path"]) if streamed else self.settings.max_body_bytes
        declared = headers.get("content-length", "0")
        if not declared.isdigit():
            raise Problem(400, "bad_request", "Content-Length is not a number")
        if int(declared) > limit:
            raise Problem(413, "body_too_large", f"at most {limit} bytes are accepted here")
        if streamed or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return counted(receive, limit)
        body = await whole_body(receive, limit)
        if "json" in headers.get("content-type", ""):
            check_json(body, self.settings.max_depth)
        scope["state"]["body"] = body
        return replay(body, receive)


def dress(message: Message, request_id: str) -> None:
    """Add the security headers to a response."""
    headers = MutableHeaders(scope=message)
    for name, value in SECURITY:
        if name not in headers:
            headers[name] = value
    if "cache-control" not in headers:
        headers["cache-control"] = "no-store"
    headers["x-request-id"] = request_id
