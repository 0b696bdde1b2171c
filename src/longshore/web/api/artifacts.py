"""Artifacts: find, read, upload. Their storage location is never shown."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import re
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import Query, Request, Response
from starlette.responses import StreamingResponse

from longshore.depot.maintenance.missing_blobs import mark_damaged
from longshore.domain.model import Artifact, Scope
from longshore.domain.policy.redaction import safe_field
from longshore.errors import BadInput, BlobDamaged, NotFound
from longshore.ledger.queries import listing, lookup
from longshore.store.verify_blob import proven_pieces
from longshore.web import queries
from longshore.web.api.common import After, Limit, Metadata, PathId, Serving, labels, request_id, router
from longshore.web.api.models import ArtifactOut, ArtifactPage, Provenance, UploadAnswer
from longshore.web.api.uploads import upload as take
from longshore.web.problems import Problem
from longshore.web.security.auth import Caller, Reader, Writer, write_line
from longshore.web.security.bodies import json_depth
from longshore.web.serializers import View, artifact_view, job_view
from longshore.web.service import Service
from longshore.worker.kinds.upload.session import UploadRequest

routes = router("artifacts", 404, 413, 422)

PIECE = 1 << 18
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})\Z")  # a longer number is ignored: the answer is the whole
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._ -]{1,150}\Z")


@routes.get("/artifacts", response_model=ArtifactPage)
async def list_artifacts(
    caller: Reader,
    service: Serving,
    limit: Limit,
    sha256: Annotated[str | None, Query(pattern="^[0-9a-fA-F]{64}$")] = None,
    url: Annotated[str | None, Query(max_length=65_536)] = None,
    work_id: Annotated[str | None, Query(max_length=65_536)] = None,
    artifact_type: Annotated[str | None, Query(max_length=128)] = None,
    metadata: Metadata = None,
    after: After = None,
) -> View:
    """List artifacts, newest first."""
    wanted = listing.ArtifactFilter(
        sha256=sha256.lower() if sha256 else None,
        url=url,
        work_id=work_id,
        artifact_type=artifact_type,
        metadata=labels(metadata),
    )
    page = await service.search(caller.token, wanted, listing.artifacts, caller.scope, wanted, after=after, limit=limit)
    return {"artifacts": [artifact_view(one) for one in page.items], "next": page.next}


@routes.get("/artifacts/{artifact_id}", response_model=ArtifactOut)
async def show_artifact(artifact_id: PathId, caller: Reader, service: Serving) -> View:
    """Show one artifact."""
    return artifact_view(await service.ledger.read_async(lookup.artifact, caller.scope, artifact_id))


@routes.get("/artifacts/{artifact_id}/provenance", response_model=Provenance)
async def show_provenance(artifact_id: PathId, caller: Reader, service: Serving) -> View:
    """List every job that produced or used an artifact."""
    return await service.ledger.read_async(queries.artifact_detail, caller.scope, artifact_id)


def wanted_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Parse a Range header: first and last byte; None for the whole, also for several ranges, as the RFC allows."""
    match = _RANGE.match(header.strip()) if header else None
    if not match or match[1] == match[2] == "":
        return None
    if not match[1]:
        length = int(match[2])
        first, last = max(0, size - length), size - 1
        satisfiable = length > 0 and size > 0
    else:
        first = int(match[1])
        last = min(int(match[2]), size - 1) if match[2] else size - 1
        if match[2] and int(match[2]) < first:
            return None  # invalid: ignored
        satisfiable = first < size
    if not satisfiable:
        raise Problem(
            416, "range_not_satisfiable", f"the artifact has {size} bytes", headers={"Content-Range": f"bytes */{size}"}
        )
    return first, last


def content_headers(artifact: Artifact) -> dict[str, str]:
    """Return the headers of a download. A name from outside never reaches a header unquoted."""
    name = artifact.name or artifact.sha256
    plain = name if _PLAIN_NAME.match(name) else artifact.sha256
    digest = base64.b64encode(bytes.fromhex(artifact.sha256)).decode()
    return {
        "ETag": f'"{artifact.sha256}"',
        "Accept-Ranges": "bytes",
        "Repr-Digest": f"sha-256=:{digest}:",
        "Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}",
        "Cache-Control": "private, max-age=31536000, immutable",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }


def content_type(artifact: Artifact) -> str:
    """Return a media type that browsers do not execute; unknown types become octet-stream."""
    kind = artifact.content_type
    safe = re.fullmatch(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}", kind)
    return kind if safe and not re.search("html|xml|script|svg", kind) else "application/octet-stream"


@routes.head("/artifacts/{artifact_id}/content", response_class=Response, include_in_schema=False)
@routes.get(
    "/artifacts/{artifact_id}/content",
    response_class=Response,
    responses={
        200: {
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            "description": "The bytes",
        },
        206: {"description": "A range of the bytes"},
        304: {"description": "Unchanged"},
        410: {"description": "The bytes are lost; the record says `missing`"},
        416: {"description": "No such range"},
    },
)
async def read_artifact(artifact_id: PathId, request: Request, caller: Reader, service: Serving) -> Response:
    """Return the bytes: whole or a range, with the hash as ETag."""
    artifact: Artifact = await service.ledger.read_async(lookup.artifact, caller.scope, artifact_id)
    headers = content_headers(artifact)
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if artifact.availability != "available":
        raise Problem(410, "missing", "the bytes of this artifact are lost", sha256=artifact.sha256)
    if_range = request.headers.get("if-range")
    asked = request.headers.get("range") if if_range in (None, headers["ETag"]) else None
    part = wanted_range(asked, artifact.size_bytes)
    first, last = part or (0, artifact.size_bytes - 1)
    headers["Content-Length"] = str(last - first + 1)
    if part:
        headers["Content-Range"] = f"bytes {first}-{last}/{artifact.size_bytes}"
    headers["Content-Type"] = content_type(artifact)
    status = 206 if part else 200
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers)
    file = await asyncio.to_thread(_opened, service, caller.scope, artifact)
    try:
        await _note_read(service, caller, artifact)
    except BaseException:
        file.close()
        raise
    body = _pieces(file, first, last - first + 1) if part else _whole(file, service, artifact)
    return StreamingResponse(body, status, headers)


async def _note_read(service: Service, caller: Caller, artifact: Artifact) -> None:
    """Write who reads which bytes, before the first of them; several ranges within a while are one read."""
    if not service.settings.audit_reads:
        return
    known, now = service.reads, time.monotonic()
    if now - known.get((caller.who, artifact.artifact_id), -math.inf) < service.settings.used_every_s:
        return
    await write_line(service, caller, {"act": "read", "sha256": artifact.sha256})
    if len(known) > 10_000:
        known.clear()
    known[caller.who, artifact.artifact_id] = now


def _opened(service: Service, scope: Scope, artifact: Artifact) -> BinaryIO:
    try:
        return service.store.open(scope, artifact.pointer)
    except NotFound as error:
        raise Problem(410, "missing", "the bytes of this artifact are lost", sha256=artifact.sha256) from error


async def _whole(file: BinaryIO, service: Service, artifact: Artifact) -> AsyncIterator[bytes]:
    """Stream a blob while hashing it; withhold the last chunk of a damaged blob, so that it is never complete."""
    try:
        pieces = proven_pieces(file, artifact.sha256)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece
    except BlobDamaged:
        await asyncio.to_thread(_set_aside, service, artifact)
        raise OSError("the blob is damaged") from None
    finally:
        file.close()


def _set_aside(service: Service, artifact: Artifact) -> None:
    scope, sha256 = artifact.scope, artifact.sha256
    if service.store.set_aside(scope, artifact.pointer, sha256, artifact.size_bytes, "download: wrong_hash"):
        service.ledger.write(mark_damaged, scope, sha256)


async def _pieces(file: BinaryIO, first: int, length: int) -> AsyncIterator[bytes]:
    try:
        await asyncio.to_thread(file.seek, first)
        while length > 0:
            piece = await asyncio.to_thread(file.read, min(PIECE, length))
            if not piece:
                raise OSError("the blob is shorter than its record")
            length -= len(piece)
            yield piece
    finally:
        file.close()


@routes.post(
    "/artifacts",
    status_code=201,
    response_model=UploadAnswer,
    responses={200: {"model": UploadAnswer, "description": "These bytes were uploaded before"}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload_artifact(
    request: Request,
    response: Response,
    caller: Writer,
    service: Serving,
    name: Annotated[str | None, Query(max_length=255)] = None,
    artifact_type: Annotated[str, Query(max_length=128, pattern="^[a-z0-9_.-]+$")] = "upload",
    sha256: Annotated[
        str | None, Query(pattern="^[0-9a-fA-F]{64}$", description="refused with 422 if the bytes differ")
    ] = None,
    schema_version: Annotated[str | None, Query(min_length=1, max_length=255)] = None,
    metadata: Annotated[str | None, Query(max_length=16_384, description="a JSON object")] = None,
    work_id: Annotated[str | None, Query(min_length=1, max_length=1024)] = None,
    run_id: Annotated[str | None, Query(min_length=1, max_length=1024)] = None,
) -> Any:
    """Upload an artifact: the body is the bytes. An upload is a job like any other.

    Bytes that are stored already keep the name, type and metadata that they were stored with.
    """
    meant = UploadRequest(
        name=name,
        artifact_type=artifact_type,
        content_type=_media_type(request.headers.get("content-type", "")),
        sha256=sha256.lower() if sha256 else None,
        work_id=work_id,
        request_id=request_id(request),
        run_id=run_id,
        schema_version=schema_version,
        metadata=_metadata(metadata, service),
    )
    await write_line(service, caller, {"act": "upload", "begun": True, "name": safe_field(name)})
    taken = await take(service, caller.scope, request.stream(), meant)
    caller.noted.update(act="upload", count=int(not taken.held), job_id=taken.job_id)
    job = await service.ledger.read_async(lookup.job, caller.scope, taken.job_id)
    response.status_code = 200 if taken.held else 201
    response.headers["Location"] = f"/api/v1/jobs/{taken.job_id}"
    return {"created": not taken.held, "job": job_view(job), "artifact_id": taken.artifact.artifact_id}


def _metadata(text: str | None, service: Service) -> dict[str, Any]:
    if text is None:
        return {}
    depth = service.settings.max_depth
    if json_depth(text.encode(), depth) > depth:
        raise BadInput(f"JSON may nest {depth} levels")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BadInput("metadata is a JSON object")
    return value


def _media_type(given: str) -> str:
    kind = given.partition(";")[0].strip().lower()
    return (
        kind if re.fullmatch(r"[a-z0-9!#$&^_.+-]{1,100}/[a-z0-9!#$&^_.+-]{1,100}", kind) else "application/octet-stream"
    )
