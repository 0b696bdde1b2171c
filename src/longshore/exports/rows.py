"""One line of the manifest: a job and what came of it. Pointers are not in it, by construction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """A job with its result, as a person or a program reads it."""

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
    facts: dict[str, Any] = field(default_factory=dict)  # telemetry of the last attempt


COLUMNS: tuple[str, ...] = tuple(entry.name for entry in fields(ManifestRow))
TIMES = ("created_at", "completed_at")


def instant(micros: int | None) -> str | None:
    """Write microseconds as RFC 3339."""
    if micros is None:
        return None
    return datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def as_dict(row: ManifestRow) -> dict[str, Any]:
    """Give a row as JSON takes it."""
    body = {name: getattr(row, name) for name in COLUMNS}
    for name in TIMES:
        body[name] = instant(body[name])
    return body


def flat(row: ManifestRow) -> dict[str, Any]:
    """Give a row as a table takes it: telemetry as one JSON text."""
    body = as_dict(row)
    body["facts"] = json.dumps(body["facts"], sort_keys=True) if body["facts"] else None
    return body


Rows = Iterator[ManifestRow]
