"""Read manifest rows from the ledger, one page at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from longshore.domain.model import Scope
from longshore.domain.policy.redaction import safe_url
from longshore.exports.manifest_rows import ManifestRow
from longshore.ledger import Ledger
from longshore.ledger.queries.manifest import Entry, entries

_PAGE = 1_000
_HIDDEN = frozenset(
    {"artifacts", "epoch", "stage", "message", "reason", "etag", "last_modified", "final_url", "sha256", "size_bytes"}
)  # have their own columns, or are internal


def manifest_rows(
    ledger: Ledger,
    scope: Scope,
    *,
    status: str | None = None,
    job_type: str | None = None,
    run_id: str | None = None,
    since: int = 0,
    held: bool = False,
    superseded: bool = True,
) -> Iterator[ManifestRow]:
    """Yield every job of a scope in planning order, with each of its results.

    `held`: only available results. Without `superseded`: only jobs that were not retried.
    """
    after = ""
    wanted: dict[str, Any] = {"status": status, "job_type": job_type, "run_id": run_id}
    wanted |= {"since": since, "superseded": superseded}
    while page := ledger.read(entries, scope, after=after, many=_PAGE, **wanted):
        after = page[-1].job_id
        for entry in page:
            if not held or (entry.sha256 is not None and entry.availability == "available"):
                yield row_of(entry)


def row_of(entry: Entry) -> ManifestRow:
    """Convert a ledger entry to a manifest row, without internal fields."""
    return ManifestRow(
        job_id=entry.job_id,
        job_type=entry.job_type,
        status=entry.status,
        stage=entry.stage,
        url=entry.url,
        work_id=entry.work_id,
        source_ref=entry.source_ref,
        artifact_id=entry.artifact_id,
        sha256=entry.sha256,
        size_bytes=entry.size_bytes,
        content_type=entry.content_type,
        name=entry.asked_name or entry.name,
        reason=entry.reason,
        message=entry.message,
        attempts=entry.attempts,
        created_at=entry.created_at,
        completed_at=entry.completed_at,
        availability=entry.availability,
        mirrors=entry.mirrors,
        expected_sha256=entry.expect.sha256,
        expected_size_bytes=entry.expect.size_bytes,
        expected_media_type=entry.expect.media_type,
        expected_digests=dict(entry.expect.digests),
        needs_headers=entry.has_headers,
        host=entry.host or None,
        etag=entry.etag,
        last_modified=entry.last_modified,
        final_url=safe_url(entry.final_url) if entry.final_url else None,
        run_id=entry.run_id,
        tenant_id=entry.tenant_id,
        project_id=entry.project_id,
        facts={key: value for key, value in entry.facts.items() if key not in _HIDDEN},
    )


def lost_entries(ledger: Ledger, scope: Scope) -> Iterator[Entry]:
    """Yield the jobs whose result is marked missing."""
    after = ""
    while page := ledger.read(entries, scope, after=after, many=_PAGE):
        after = page[-1].job_id
        yield from (entry for entry in page if entry.availability == "missing")
