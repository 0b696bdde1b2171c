"""A downloader's own interface on a depot: `download_pdf` returns the manifest row that the rest of the program expects."""

from __future__ import annotations

from typing import Any

import longshore
from longshore.ledger.queries.lookup import url_versions


class DownloadFailed(Exception):
    """The reason is one of the program's (docs/reference/reasons.md)."""


def download_pdf(depot: longshore.Depot, *, work_id: str, artifact_id: str, url: str) -> dict[str, Any]:
    """Fetch a PDF once, whoever asks how often, and return its manifest row."""
    wanted = {"url": url, "work_id": work_id, "artifact_id": artifact_id, "media_type": "application/pdf"}
    (got,) = depot.get([wanted])
    if got.artifact is None:
        raise DownloadFailed(f"{got.reason}: {got.message}")
    facts = next((e.facts for e in reversed(depot.show(got.job_id).events) if e.kind in ("completed", "skipped")), {})
    seen = next(iter(depot.ledger.read(url_versions, depot.scope, [longshore.canonical_url(url)]).values()), None)
    return {
        "final_path": str(got.path),
        "part_path": None,  # private to the attempt, and gone
        "content_length": got.artifact.size_bytes,
        "etag": seen.validators.etag if seen else None,
        "last_modified": seen.validators.last_modified if seen else None,
        "sha256": got.artifact.sha256,
        "bytes_written": facts.get("stream_bytes", 0),
        "resumed_from_bytes": facts.get("resumed_from_bytes", 0),
        "resumed": int(bool(facts.get("resumed_from_bytes"))),
        "fsync_ms": facts.get("fsync_ms"),
        "elapsed_ms": facts.get("elapsed_ms"),
        "avg_write_mibps": facts.get("avg_write_mibps"),
        "dedupe_action": "skipped" if got.held_before else facts.get("dedupe_action", "download"),
        "shard_prefix": facts.get("shard_prefix"),
    }
