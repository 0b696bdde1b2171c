"""Between rows and records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final, TypeVar

from longshore.domain.model import Artifact, Expect, Job, JobRequest, Lease, Scope, Status
from longshore.domain.versions import NO_CALLER, caller_of
from longshore.errors import BadInput
from longshore.ledger.tx import Row

T = TypeVar("T")
_SLUG: Final = re.compile(r"[a-z0-9_-]{1,63}\Z")
_NOTHING: Final = Expect()
_STATUS: Final = {status.value: status for status in Status}
_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_encode = _encoder.encode


def check_scope(scope: Scope) -> Scope:
    """Refuse a tenant or project that could not be a name in a path."""
    if not isinstance(scope, Scope):
        raise BadInput(f"a scope is a Scope of tenant and project, not {type(scope).__name__}")
    for name, value in zip(("tenant", "project"), scope, strict=True):
        if not isinstance(value, str) or not _SLUG.match(value):
            raise BadInput(f"a {name} is 1 to 63 of a-z, 0-9, - and _, not {str(value)[:80]!r}")
    return scope


def check_lease(lease: Lease) -> Lease:
    """Refuse what no claim gave."""
    if not isinstance(lease, Lease):
        raise BadInput(f"a lease is what claim gave, not {type(lease).__name__}")
    return lease


def encoded(value: Any) -> str:
    """Write JSON; what JSON cannot say is refused."""
    try:
        return _encode(value)
    except (TypeError, ValueError) as error:
        raise BadInput(f"not JSON: {error}") from None


def by_tenant(items: Sequence[T], scope_of: Callable[[T], Scope]) -> Iterable[tuple[str, list[tuple[int, T]]]]:
    """Group a batch by tenant, each item with its place."""
    numbered = list(enumerate(items))
    try:
        tenants = {scope_of(item).tenant_id for item in items}
    except (AttributeError, TypeError, IndexError):
        raise BadInput("a lease is what claim gave; something here is none") from None
    if len(tenants) > 1:
        numbered.sort(key=lambda pair: scope_of(pair[1]).tenant_id)
    for tenant, group in groupby(numbered, key=lambda pair: scope_of(pair[1]).tenant_id):
        yield tenant, list(group)


def request_text(request: JobRequest) -> str | None:
    """Write what of a request has no column of its own; None when there is nothing."""
    body: dict[str, Any] = {}
    if request.mirrors:
        body["mirrors"] = request.mirrors
    if request.expect is not _NOTHING and request.expect != _NOTHING:
        expect = request.expect
        body["expect"] = [expect.sha256, expect.size_bytes, expect.media_type, expect.digests]
    if request.headers:
        body["headers"] = request.headers
    if request.name is not None:
        body["name"] = request.name
    if request.params:
        body["params"] = request.params
    if request.inputs:
        body["inputs"] = request.inputs
    return encoded(body) if body else None


def expect_of(text: str | None) -> Expect:
    """Read the expectations out of what `request_text` wrote."""
    if text is None or '"expect"' not in text:
        return _NOTHING
    body = json.loads(text)
    return _expect_of(body["expect"]) if "expect" in body else _NOTHING


def caller_in(text: str | None) -> str:
    """Return the caller of what `request_text` wrote: a hash of the request's own headers."""
    if text is None or '"headers"' not in text:
        return NO_CALLER
    return caller_of((name, value) for name, value in json.loads(text).get("headers", ()))


def job_of(row: Row) -> Job:
    """Make a job of the columns {job}."""
    request = _request_of(row)
    return Job(
        Scope(row[1], row[2]),
        row[3],
        row[4],
        _STATUS[row[5]],
        row[6],
        request,
        row[8],
        row[7],
        row[9],
        row[10],
        row[11],
        row[12],
        row[13],
        row[14],
        row[15],
        row[16],
        row[17],
        row[18],
        row[19],
        row[20],
        row[21],
        row[22],
        row[23],
        row[24],
        row[25],
        row[26],
        row[42],
    )


def _request_of(row: Row) -> JobRequest:
    canonical = row[31]
    body: dict[str, Any] = json.loads(row[33]) if row[33] else {}
    return JobRequest(
        row[4],
        row[27],
        row[28] or canonical,
        row[29] or canonical,
        row[30] or canonical,
        canonical,
        row[32],
        tuple(body.get("mirrors", ())),
        _expect_of(body["expect"]) if "expect" in body else _NOTHING,
        body.get("name"),
        tuple((name, value) for name, value in body.get("headers", ())),
        row[8],
        body.get("params", {}),
        tuple(body.get("inputs", ())),
        row[34],
        row[35],
        row[36],
        row[37],
        row[38],
        row[39],
        row[40],
        row[21],
    )


def _expect_of(parts: list[Any]) -> Expect:
    return Expect(parts[0], parts[1], parts[2], tuple((algorithm, value) for algorithm, value in parts[3]))


def artifact_of(row: Row) -> Artifact:
    """Make an artifact of the columns {artifact}."""
    return Artifact(
        scope=Scope(row[0], row[1]),
        artifact_id=row[2],
        artifact_type=row[3],
        backend=row[4],
        pointer=row[5],
        content_type=row[6],
        size_bytes=row[7],
        sha256=row[8],
        schema_version=row[9],
        name=row[10],
        metadata=json.loads(row[11]) if row[11] else {},
        created_at=row[12],
        created_by_job_id=row[13],
        previous_id=row[14],
        availability=row[15],
    )


def fence_rows(leases: Iterable[Lease], now: int) -> list[Row]:
    """Give what the statement `fence` asks for."""
    return [(*lease.scope, lease.job_id, lease.epoch, lease.owner, now) for lease in leases]
