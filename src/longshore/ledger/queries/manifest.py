"""Read the manifest: all jobs in order, with their results, page by page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from longshore.domain.kinds import kind_of
from longshore.domain.model import Expect, Micros, Scope
from longshore.ledger.rows import check_scope, encoded, expect_of
from longshore.ledger.transaction import Row, Tx

_WITH_RESULTS: Final = frozenset({"completed", "skipped"})


@dataclass(frozen=True, slots=True)
class Entry:
    """A job with one of its results and the facts of its end."""

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
    created_at: Micros
    completed_at: Micros | None
    facts: dict[str, Any] = field(default_factory=dict)
    availability: str | None = None
    host: str = ""
    run_id: str | None = None
    tenant_id: str = ""
    project_id: str = ""
    etag: str | None = None
    last_modified: str | None = None
    final_url: str | None = None
    asked_name: str | None = None
    expect: Expect = field(default_factory=Expect)
    mirrors: tuple[str, ...] = ()
    has_headers: bool = False


def entries(
    tx: Tx,
    scope: Scope,
    *,
    after: str = "",
    many: int = 1_000,
    status: str | None = None,
    job_type: str | None = None,
    run_id: str | None = None,
    since: Micros = 0,
    superseded: bool = True,
) -> list[Entry]:
    """Return a page of the manifest, jobs with several results once for each; the next one begins after its last job.

    Without `superseded`: only jobs that were not tried again.
    """
    check_scope(scope)
    tx.enter(scope.tenant_id)
    wanted = {"status": status, "job_type": job_type, "run_id": run_id, "since": since, "superseded": int(superseded)}
    rows = tx.all("manifest_page", after=after, many=many, **wanted, **scope._asdict())
    return _all_results(tx, scope, [_entry(row) for row in rows])


def _all_results(tx: Tx, scope: Scope, found: list[Entry]) -> list[Entry]:
    several = [
        entry.job_id
        for entry in found
        if not kind_of(entry.job_type).of_url and (entry.artifact_id is not None or entry.status in _WITH_RESULTS)
    ]
    if not several:
        return found
    more: dict[str, list[Row]] = {}
    for row in tx.all("manifest_more", job_ids=encoded(several), **scope._asdict()):
        job_id, *_ = row
        more.setdefault(job_id, []).append(row)
    answer: list[Entry] = []
    for entry in found:
        further = [_further(entry, row) for row in more.get(entry.job_id, ())]
        if entry.artifact_id is not None or not further:  # the first result may be deleted, and others not
            answer.append(entry)
        answer += further
    return answer


def _further(entry: Entry, row: Row) -> Entry:
    _, artifact_id, sha256, size_bytes, content_type, name, availability = row
    return replace(
        entry,
        artifact_id=artifact_id,
        sha256=sha256,
        size_bytes=size_bytes,
        content_type=content_type,
        name=name,
        availability=availability,
        asked_name=None,
    )


def _entry(row: Row) -> Entry:
    *columns, text, availability, host, run_id, tenant, project, published, request = row
    asked = json.loads(request) if request else {}
    facts = json.loads(text) if text else {}
    answer = facts | (json.loads(published) if published else {})  # which version the server sent
    columns += [facts, availability, host, run_id, tenant, project]
    columns += [answer.get(name) for name in ("etag", "last_modified", "final_url")] + [asked.get("name")]
    return Entry(*(*columns, expect_of(request), tuple(asked.get("mirrors", ())), "headers" in asked))


def entries_of(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> list[Entry]:
    """Return named jobs as the manifest tells them."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    rows = tx.all("manifest_of", job_ids=encoded(list(job_ids)), **scope._asdict())
    return _all_results(tx, scope, [_entry(row) for row in rows])
