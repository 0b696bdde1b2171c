"""Many jobs in one request: NDJSON in, one result line for each line, in order.

Lines are planned while they arrive. Results are kept (on disk when there are many) until the last line is in: a client
that first sends everything and then reads must not wait for a server that waits for it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from fastapi import Request
from pydantic import ValidationError
from starlette.responses import StreamingResponse

from longshore.domain.model import JobRequest, Scope
from longshore.errors import BadInput
from longshore.web.api.common import Serving, request_id, router
from longshore.web.api.jobs import plan, readable, to_request
from longshore.web.api.models import JobIn
from longshore.web.problems import Problem
from longshore.web.security.auth import Writer
from longshore.web.service import Service

routes = router("jobs", 413, 415, 422)

CHUNK_LINES = 500
LINE_BYTES = 1 << 20
KEPT_IN_MEMORY = 4 << 20


async def lines(request: Request) -> AsyncIterator[bytes]:
    """Split a streamed body into lines; reject lines that are too long."""
    rest = b""
    async for chunk in request.stream():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > LINE_BYTES:
            raise Problem(413, "line_too_long", f"a line may have {LINE_BYTES} bytes")
    if rest:
        yield rest


def read_line(line: bytes, asked_by: str) -> tuple[JobIn, JobRequest] | str:
    """Parse one line; return an error as a value, because the other lines continue."""
    try:
        body = readable(line)
        return body, to_request(body, asked_by)
    except BadInput as error:
        return str(error)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:300]
    except (ValueError, RecursionError):
        return "not a JSON object"


@routes.post(
    "/jobs:batch",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}, "description": "One line per line"}
    },
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
    },
)
async def create_batch(request: Request, caller: Writer, service: Serving) -> StreamingResponse:
    """Submit many jobs as JSON lines (or bare URLs). Every line gets a result line; errors are per line."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/x-ndjson", "application/jsonl", "application/json-seq", "text/plain"):
        raise Problem(415, "unsupported_type", "send application/x-ndjson")
    results: IO[bytes] = SpooledTemporaryFile(KEPT_IN_MEMORY)  # noqa: SIM115 - closed after the response
    chunk: list[tuple[int, bytes]] = []
    number = 0
    async for line in lines(request):
        number += 1
        if line.strip():
            chunk.append((number, line))
        if len(chunk) >= CHUNK_LINES:
            await _take(service, caller.scope, chunk, request_id(request), results)
            chunk = []
    await _take(service, caller.scope, chunk, request_id(request), results)
    caller.noted.update(act="add", lines=number)
    results.seek(0)
    return StreamingResponse(_pieces(results), media_type="application/x-ndjson")


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(65_536):
            yield piece


async def _take(
    service: Service, scope: Scope, chunk: list[tuple[int, bytes]], asked_by: str, results: IO[bytes]
) -> None:
    """Plan one chunk and write its result lines."""
    read = [(number, read_line(line, asked_by)) for number, line in chunk]
    planned: dict[int, dict[str, Any]] = {}
    for again in ("never", "failed", "always"):
        group = [(n, item[1]) for n, item in read if not isinstance(item, str) and item[0].again == again]
        if group:
            answers = await plan(service, scope, [asked for _, asked in group], again, None, "")
            planned.update(zip((n for n, _ in group), answers, strict=True))
    for number, item in read:
        said = (
            {"line": number, "reason": "bad_input", "message": item}
            if isinstance(item, str)
            else {"line": number, **planned[number]}
        )
        results.write(json.dumps(said).encode() + b"\n")
