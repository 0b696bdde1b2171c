"""Delete artifacts: row first, bytes second.

Publishing writes bytes before rows, so that a row never lacks its bytes. Deleting runs the other way round: one transaction
removes the rows and leaves a tombstone for each, and only then are the bytes removed. A crash in between leaves bytes that
nothing refers to and a tombstone with `freed_at` NULL, from which `depot.maintenance.deletion` goes on.

What goes with an artifact: its links to jobs, its URL version, its metadata, and its blob's row if no other artifact has
these bytes. An asset that had one of its files here is `removed`, and its book is computed again. The jobs stay, with an
event `artifact_deleted`; their keys are free, so asking for the same again makes a new job. An artifact that an unfinished
job has as input is not deleted: the job would run without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from longshore.domain.model import Micros, Scope
from longshore.ledger.named_rows import DeletedRow
from longshore.ledger.operations.audit_log import NewEntry, audit
from longshore.ledger.operations.book_assets import recompute_book
from longshore.ledger.operations.planning import add_counts
from longshore.ledger.rows import check_scope, encoded
from longshore.ledger.transaction import Tx

SHARED: Final = 0  # `freed_at` of a tombstone whose bytes another artifact has, too
EVENT: Final = "artifact_deleted"


@dataclass(frozen=True, slots=True)
class By:
    """Who deletes, for the tombstone and the audit log."""

    token_id: str
    remote: str = ""
    why: str | None = None


@dataclass(slots=True)
class Deleted:
    """The result of one transaction."""

    artifact_ids: list[str] = field(default_factory=list)
    bytes: int = 0  # of blobs that nothing refers to any more
    used: dict[str, str] = field(default_factory=dict)  # not deleted: inputs, each with an unfinished job
    unknown: list[str] = field(default_factory=list)


class Unfreed(NamedTuple):
    """Bytes whose rows are deleted."""

    sha256: str
    pointer: str
    size_bytes: int


def delete_artifacts(tx: Tx, scope: Scope, artifact_ids: Sequence[str], by: By) -> Deleted:
    """Delete the rows of artifacts and what belongs to them; leave tombstones and a line in the audit log."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    where = {**scope._asdict(), "artifact_ids": encoded(sorted(set(artifact_ids)))}
    rows = [DeletedRow._make(row) for row in tx.all("delete_rows", **where)]
    known = {row.artifact_id for row in rows}
    done = Deleted(unknown=[one for one in dict.fromkeys(artifact_ids) if one not in known])
    done.used = {artifact_id: job_id for artifact_id, job_id in tx.all("delete_used", **where) if artifact_id in known}
    rows = [row for row in rows if row.artifact_id not in done.used]
    if rows:
        done.artifact_ids = [row.artifact_id for row in rows]
        _unlink(tx, scope, rows, by)
        _delete_rows(tx, scope, rows, by, done)
        detail = {"act": "delete", "count": len(rows), "why": by.why, "artifact_ids": done.artifact_ids[:20]}
        audit(tx, scope, NewEntry(by.token_id, "delete artifacts", f"{len(rows)} artifacts", by.remote, detail))
    return done


def _unlink(tx: Tx, scope: Scope, rows: Sequence[DeletedRow], by: By) -> None:
    """Take the artifacts from their jobs, URLs and assets."""
    links = tx.all("delete_links", **scope._asdict(), artifact_ids=encoded([row.artifact_id for row in rows]))
    results = [(artifact_id, job_id, url) for artifact_id, job_id, role, url, _ in links if role == "result"]
    jobs = list(dict.fromkeys(job_id for _, job_id, _ in results))
    assets = tx.all("delete_assets_of", **scope._asdict(), job_ids=encoded(jobs))
    tx.many("delete_asset", [(tx.now, *scope, book_id, kind) for book_id, kind in assets])
    for book_id in sorted({book_id for book_id, _ in assets}):
        recompute_book(tx, scope, book_id)
    versions = {(url, artifact_id) for artifact_id, _, url in results if url}
    tx.many("delete_version", [(*scope, url, artifact_id) for url, artifact_id in sorted(versions)])
    tx.many("delete_key", [(tx.now, *scope, job_id) for job_id in sorted(jobs)])
    told = [
        (*scope, job_id, EVENT, tx.now, encoded({"artifact": artifact_id, "by": by.token_id, "why": by.why}))
        for artifact_id, job_id in _told(rows, results)
    ]
    tx.many("event_insert", told)


def _told(rows: Sequence[DeletedRow], results: Sequence[tuple[str, str, str | None]]) -> list[tuple[str, str]]:
    """Return the artifacts and jobs of the events: every result, and an artifact that is none with the job that made it."""
    told = [(artifact_id, job_id) for artifact_id, job_id, _ in results]
    known = {artifact_id for artifact_id, _ in told}
    return told + [(row.artifact_id, row.created_by_job_id) for row in rows if row.artifact_id not in known]


def _delete_rows(tx: Tx, scope: Scope, rows: Sequence[DeletedRow], by: By, done: Deleted) -> None:
    names = [(*scope, row.artifact_id) for row in rows]
    tx.many("delete_tombstone", names)
    tx.many("delete_job_link", names)
    tx.many("delete_artifact", names)
    hashes = encoded(sorted({row.sha256 for row in rows}))
    unheld: dict[str, int] = dict(tx.all("delete_unheld", **scope._asdict(), sha256s=hashes))
    tx.many("delete_blob", [(*scope, sha256) for sha256 in sorted(unheld)])
    done.bytes = sum(unheld.values())
    notes = [(*scope, *row, tx.now, by.token_id, by.why, None if row.sha256 in unheld else SHARED) for row in rows]
    tx.many("delete_note", notes)
    counts: Counter[tuple[str, str, str]] = Counter()
    counts[(*scope, "artifacts")] = -len(rows)
    counts[(*scope, "artifact_bytes")] = -sum(row.byte_size for row in rows)
    counts[(*scope, "blobs")] = -len(unheld)
    counts[(*scope, "blob_bytes")] = -done.bytes
    add_counts(tx, counts)


def unfreed(tx: Tx, scope: Scope, many: int) -> list[Unfreed]:
    """Return deleted bytes whose files are still to be removed."""
    tx.enter(scope.tenant_id)
    return [
        Unfreed(sha256, pointer, int(size))
        for sha256, pointer, size in tx.all("deleted_unfreed", many=many, **scope._asdict())
    ]


def note_freed(tx: Tx, scope: Scope, sha256s: Sequence[str], freed_at: Micros) -> None:
    """Record that deleted bytes are gone, or that they were stored again (`SHARED`)."""
    tx.enter(scope.tenant_id)
    tx.many("deleted_freed", [(freed_at, *scope, sha256) for sha256 in sha256s])
