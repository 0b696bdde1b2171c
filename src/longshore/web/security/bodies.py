"""Limits of request bodies: size and depth. A body is read after its token was looked up, never before."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from longshore.web.problems import Problem
from longshore.web.server_options import ServerOptions

NO_BODY: Final = ("GET", "HEAD", "OPTIONS")
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


class Bodies:
    """Reads or bounds the bodies of one server's requests."""

    def __init__(self, settings: ServerOptions, streamed_limit: Callable[[str], int]) -> None:
        self.settings, self.streamed_limit = settings, streamed_limit

    async def bounded(self, scope: Scope, headers: Headers, receive: Receive, *, anonymous: bool) -> Receive:
        """Return a `receive` that stays within the limits; JSON and forms are read completely, into the state `body`."""
        streamed = not collected(headers)
        limit = self.streamed_limit(scope["path"]) if streamed else self.settings.max_body_bytes
        if anonymous:
            limit = min(limit, self.settings.max_anonymous_bytes)
        declared = headers.get("content-length", "0")
        if not declared.isdigit():
            raise Problem(400, "bad_request", "Content-Length is not a number")
        if int(declared) > limit:
            raise Problem(413, "body_too_large", f"at most {limit} bytes are accepted here")
        if streamed or scope["method"] in NO_BODY:
            return counted(receive, limit)
        body = await whole_body(receive, limit)
        if "json" in headers.get("content-type", ""):
            check_json(body, self.settings.max_depth)
        scope["state"]["body"] = body
        return replay(body, receive)
