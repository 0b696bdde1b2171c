"""Many jobs in one request: NDJSON in, one result line for each line, in order.

Lines are planned while they arrive. Results are kept (on disk when there are many) until the last line is in: a client
that first sends everything and then reads must not wait for a server that waits for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from fastapi import Request
from pydantic import ValidationError
from starlette.responses import StreamingResponse

from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.web.api.common import Serving, request_id, router
from longshore.web.api.jobs import plan, readable, to_request, types_of, unknown_type
from longshore.web.api.models import JobIn
from longshore.web.problems import Problem
from longshore.web.security.auth import Caller, Writer, write_line
from longshore.web.service import Service

routes = router("jobs", 413, 415, 422)

CHUNK_LINES = 500
LINE_BYTES = 1 << 20
KEPT_IN_MEMORY = 4 << 20
BAD_LINES = 1000  # reported one by one; a batch of nothing else must not be answered with many times its size
MESSAGE_CHARACTERS = 300

Line = tuple[int, tuple[JobIn, JobRequest] | str]


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


def read_line(line: bytes, asked_by: str, max_depth: int) -> tuple[JobIn, JobRequest] | str:
    """Parse one line; return an error as a value, because the other lines continue."""
    try:
        body = readable(line, max_depth)
        return body, to_request(body, asked_by)
    except BadInput as error:
        return str(error)[:MESSAGE_CHARACTERS]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:MESSAGE_CHARACTERS]
    except (ValueError, RecursionError):
        return "not a JSON object"


class Results:
    """The result lines of one batch: one for each valid line, and for the first `BAD_LINES` invalid ones."""

    def __init__(self) -> None:
        self.file: IO[bytes] = SpooledTemporaryFile(KEPT_IN_MEMORY)  # noqa: SIM115 - closed after the response
        self.bad = 0

    def write(self, chunk: list[dict[str, Any]]) -> None:
        """Append result lines; count the invalid lines that are not reported any more."""
        kept = []
        for said in chunk:
            self.bad += "reason" in said
            if "reason" not in said or self.bad <= BAD_LINES:
                kept.append(json.dumps(said).encode() + b"\n")
        self.file.write(b"".join(kept))

    def finished(self) -> IO[bytes]:
        """Append how many lines were invalid if not all of them are reported, and return the file."""
        if self.bad > BAD_LINES:
            text = f"{self.bad} lines are invalid; the first {BAD_LINES} are reported"
            said = {"line": None, "reason": "bad_input", "message": text, "bad_lines": self.bad}
            self.file.write(json.dumps(said).encode() + b"\n")
        self.file.seek(0)
        return self.file


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
    """Submit many jobs as JSON lines (or bare URLs). Every line gets a result line, of invalid ones the first 1,000."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/x-ndjson", "application/jsonl", "application/json-seq", "text/plain"):
        raise Problem(415, "unsupported_type", "send application/x-ndjson")
    results = Results()
    take = partial(_take, service, caller, request_id(request), results)
    chunk: list[tuple[int, bytes]] = []
    number = 0
    try:
        async for line in lines(request):
            number += 1
            if number > service.settings.max_batch_lines:
                raise Problem(413, "too_many_lines", f"a batch may have {service.settings.max_batch_lines} lines")
            if line.strip():
                chunk.append((number, line))
            if len(chunk) >= CHUNK_LINES:
                await take(chunk)
                chunk = []
        await take(chunk)
    except BaseException:
        results.file.close()
        raise
    caller.noted.pop("count", None)
    await write_line(service, caller, {"status": 200, "act": "add", "lines": number, "bad_lines": results.bad})
    caller.acted.append(True)
    return StreamingResponse(_pieces(results.finished()), media_type="application/x-ndjson")


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(65_536):
            yield piece


async def _take(
    service: Service, caller: Caller, asked_by: str, results: Results, chunk: list[tuple[int, bytes]]
) -> None:
    """Plan one chunk and write its result lines. Lines are parsed in a thread: a batch must not hold the event loop."""
    read = await asyncio.to_thread(_parsed, chunk, asked_by, service.settings.max_depth)
    types = await types_of([item[1] for _, item in read if not isinstance(item, str)])
    read = [(number, item if isinstance(item, str) else unknown_type(item[1], types) or item) for number, item in read]
    planned: dict[int, dict[str, Any]] = {}
    for again in ("never", "failed", "always"):
        group = [(n, item[1]) for n, item in read if not isinstance(item, str) and item[0].again == again]
        if group:
            answers = await plan(service, caller, [asked for _, asked in group], again, None, "", note=_added)
            planned.update(zip((n for n, _ in group), answers, strict=True))
    said = [
        {"line": number, "reason": "bad_input", "message": item}
        if isinstance(item, str)
        else {"line": number, **planned[number]}
        for number, item in read
    ]
    await asyncio.to_thread(results.write, said)


def _added(planned: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the line of one part: it is written with the jobs, whether or not the batch comes to its end."""
    return {"act": "add", "part": len(planned), "count": sum(bool(one["created"]) for one in planned)}


def _parsed(chunk: list[tuple[int, bytes]], asked_by: str, max_depth: int) -> list[Line]:
    return [(number, read_line(line, asked_by, max_depth)) for number, line in chunk]
