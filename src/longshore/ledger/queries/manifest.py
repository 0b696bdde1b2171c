"""Read all jobs in order, and purge finished ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from longshore import failpoints
from longshore.domain.kinds import kind_of
from longshore.domain.model import Expect, Micros, Scope, Status
from longshore.ledger.maintenance.purge_order import chains, unpointed
from longshore.ledger.operations.planning import add_counts
from longshore.ledger.rows import check_scope, encoded, expect_of
from longshore.ledger.transaction import Row, Tx

failpoints.declare("purge.delete")


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
    since: Micros = 0,
    superseded: bool = True,
) -> list[Entry]:
    """Return a page of the manifest, jobs with several results once for each; the next one begins after its last job.

    Without `superseded`: only jobs that were not tried again.
    """
    check_scope(scope)
    tx.enter(scope.tenant_id)
    wanted = {"status": status, "job_type": job_type, "since": since, "superseded": int(superseded)}
    rows = tx.all("manifest_page", after=after, many=many, **wanted, **scope._asdict())
    return _all_results(tx, scope, [_entry(row) for row in rows])


def _all_results(tx: Tx, scope: Scope, found: list[Entry]) -> list[Entry]:
    several = [entry.job_id for entry in found if entry.artifact_id is not None and not kind_of(entry.job_type).of_url]
    if not several:
        return found
    more: dict[str, list[Row]] = {}
    for row in tx.all("manifest_more", job_ids=encoded(several), **scope._asdict()):
        job_id, *_ = row
        more.setdefault(job_id, []).append(row)
    return [one for entry in found for one in (entry, *(_further(entry, row) for row in more.get(entry.job_id, ())))]


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
    *columns, facts, availability, request = row
    asked = json.loads(request) if request else {}
    columns += [json.loads(facts) if facts else {}, availability, asked.get("name")]
    return Entry(*(*columns, expect_of(request), tuple(asked.get("mirrors", ())), "headers" in asked))


def entries_of(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> list[Entry]:
    """Return named jobs as the manifest tells them."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    rows = tx.all("manifest_of", job_ids=encoded(list(job_ids)), **scope._asdict())
    return _all_results(tx, scope, [_entry(row) for row in rows])


def purgeable(
    tx: Tx, scope: Scope, status: Status, *, before: Micros, edge: int = 0, scan: int = 2_000
) -> tuple[list[list[str]], int | None]:
    """Return jobs of a status that are over since before a time and that nothing points to; and where to go on.

    Each comes with the older jobs that it was made from, if nothing else keeps them: what goes together.
    """
    check_scope(scope)
    tx.enter(scope.tenant_id)
    where = scope._asdict() | {"status": status.value, "edge": edge, "scan": scan}
    found = chains(tx, scope, before, tx.all("purge_page", before=before, **where))
    last, seen = tx.one("jobs_oldest_end", **where) or (0, 0)
    return found, int(last) if seen == scan else None


def purge(tx: Tx, scope: Scope, job_ids: Sequence[str], *, before: Micros) -> int:
    """Forget jobs that were archived; a tombstone keeps their key. Gives how many went."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    where = scope._asdict()
    rows = tx.all("purge_rows", job_ids=encoded(list(job_ids)), before=before, **where)
    rows = unpointed(tx, scope, before, rows)
    names = [(*scope, job_id) for job_id, *_ in rows]
    tx.many("purge_bury", [(tx.now, *name) for name in names])
    failpoints.hit("purge.delete")
    tx.many("purge_links", names)
    tx.many("purge_events", names)
    tx.run("purge_jobs", job_ids=encoded([job_id for job_id, *_ in rows]), **where)
    gone = Counter((scope.tenant_id, scope.project_id, str(status)) for _, status in rows)
    add_counts(tx, Counter({name: -count for name, count in gone.items()}))
    return len(rows)
