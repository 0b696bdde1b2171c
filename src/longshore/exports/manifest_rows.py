"""One line of the manifest: a job and its result. It never contains storage pointers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """A job with its result, as exported."""

    job_id: str
    job_type: str
    status: str
    stage: str
    url: str | None
    work_id: str | None
    source_ref: str | None
    artifact_id: str | None
    sha256: str | None
    size_bytes: int | None
    content_type: str | None
    name: str | None
    reason: str | None
    message: str | None
    attempts: int
    created_at: int
    completed_at: int | None
    availability: str | None = None  # of the result: available, or missing (lost or damaged)
    facts: dict[str, Any] = field(default_factory=dict)  # telemetry of the last attempt
    mirrors: tuple[str, ...] = ()
    expected_sha256: str | None = None
    expected_size_bytes: int | None = None
    expected_media_type: str | None = None
    expected_digests: dict[str, str] = field(default_factory=dict)
    needs_headers: bool = False  # the request had headers; their values are secrets, and are not exported
    host: str | None = None
    etag: str | None = None  # what the server said of the version that it sent
    last_modified: str | None = None
    final_url: str | None = None  # after redirects; without secrets
    run_id: str | None = None
    tenant_id: str = ""
    project_id: str = ""


COLUMNS: tuple[str, ...] = tuple(entry.name for entry in fields(ManifestRow))
# The telemetry that every row has, whatever became of the job: null where it does not apply. As columns of a table, and the
# type of each.
TELEMETRY: dict[str, type] = {
    "http_status": int,
    "stream_bytes": int,
    "elapsed_ms": float,
    "avg_write_mibps": float,
    "fsync_ms": float,
    "resume_decision": str,
    "resume_reason": str,
    "resumed_from_bytes": int,
    "dedupe_action": str,
    "deduplicated": bool,
    "revalidated": bool,
    "unverified_length": bool,
    "hops": int,
    "shard_prefix": str,
    "quota_decision": str,
    "quota_need": int,
    "quota_start_free": int,
    "quota_reserved": int,
    "quota_floor": int,
    "quota_tenant_left": int,
    "adopted": bool,
    "reuse_of": str,
    "why": str,
    "retry_after_s": float,
    "debug_id": str,
}
TABLE_COLUMNS: tuple[str, ...] = (*COLUMNS, *TELEMETRY)
_FACT_NAMES = {"http_status": "status"}  # of the job's status, which has a column of that name
TIMES = ("created_at", "completed_at")


def instant(micros: int | None) -> str | None:
    """Format microseconds as RFC 3339."""
    if micros is None:
        return None
    return datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def as_dict(row: ManifestRow) -> dict[str, Any]:
    """Return a row as a JSON-compatible dict."""
    body = {name: getattr(row, name) for name in COLUMNS}
    for name in TIMES:
        body[name] = instant(body[name])
    body["mirrors"] = list(row.mirrors)
    body["facts"] = dict.fromkeys((_FACT_NAMES.get(name, name) for name in TELEMETRY), None) | row.facts
    return body


def flat(row: ManifestRow) -> dict[str, Any]:
    """Return a row as a flat dict for a table: each figure of the telemetry has a column; `facts` has all as JSON."""
    body = as_dict(row) | {"facts": row.facts}
    for name, kind in TELEMETRY.items():
        value = row.facts.get(_FACT_NAMES.get(name, name))
        body[name] = None if value is None else kind(value)
    for name in ("facts", "expected_digests"):
        body[name] = json.dumps(body[name], sort_keys=True) if body[name] else None
    body["mirrors"] = " ".join(body["mirrors"]) or None
    return body


Rows = Iterator[ManifestRow]
