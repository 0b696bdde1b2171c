"""The registry of artifacts: bytes that exist get their immutable record, in the transaction that completes the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from longshore.domain.model import Lease, NewArtifact, Scope
from longshore.domain.outcomes import Completed, Reused
from longshore.domain.states import DOWNLOAD
from longshore.errors import BadInput, LongshoreError, NotFound
from longshore.ledger.books import mark_assets
from longshore.ledger.facts import redacted
from longshore.ledger.ids import new_ids
from longshore.ledger.planning import add_counts
from longshore.ledger.records import Fenced
from longshore.ledger.rows import check_scope, encoded
from longshore.ledger.tx import Row, Tx

Done = tuple[Lease, Fenced, Completed]
Result = tuple[Done, list[tuple[str, NewArtifact]]]


def register(tx: Tx, done: Sequence[Done]) -> list[tuple[tuple[str, ...], bool]]:
    """Write blobs, artifacts, links, URL versions and the FINALIZE results of a batch.

    Gives of each job its artifacts and whether all its bytes were there before.
    """
    ids = new_ids(sum(len(outcome.artifacts) for _, _, outcome in done), tx.now)
    results: list[tuple[Done, list[tuple[str, NewArtifact]]]] = []
    place = 0
    for item in done:
        count = len(item[2].artifacts)
        results.append((item, list(zip(ids[place : place + count], item[2].artifacts, strict=True))))
        place += count
    fresh = _insert_blobs(tx, results)
    previous = _put_versions(tx, results)
    tx.many("artifact_insert", [row for result in results for row in _artifact_rows(result, previous, tx.now)])
    tx.many(
        "job_artifact_insert",
        [
            (*lease.scope, lease.job_id, new.role, place, artifact_id)
            for (lease, _, _), made in results
            for place, (artifact_id, new) in enumerate(made)
        ],
    )
    tx.many(
        "finalize_confirm", [_confirmation(result, tx.now) for result in results if result[0][1].job_type == DOWNLOAD]
    )
    add_counts(tx, _held(results, fresh))
    answer = []
    for (lease, _, _), made in results:
        new = [(lease.scope.project_id, artifact.blob.sha256) in fresh for _, artifact in made]
        fresh.difference_update((lease.scope.project_id, artifact.blob.sha256) for _, artifact in made)
        answer.append((tuple(artifact_id for artifact_id, _ in made), bool(made) and not any(new)))
    return answer


def _held(results: Sequence[Result], fresh: set[tuple[str, str]]) -> Counter[tuple[str, str, str]]:
    """Count what is held: artifacts, and the blobs under them. The difference is what dedupe saved."""
    counts: Counter[tuple[str, str, str]] = Counter()
    blobs: dict[tuple[Scope, str], int] = {}
    for (lease, _, _), made in results:
        for _, artifact in made:
            counts[(*lease.scope, "artifacts")] += 1
            counts[(*lease.scope, "artifact_bytes")] += artifact.blob.size_bytes
            if (lease.scope.project_id, artifact.blob.sha256) in fresh:
                blobs[lease.scope, artifact.blob.sha256] = artifact.blob.size_bytes
    for (scope, _), size in blobs.items():
        counts[(*scope, "blobs")] += 1
        counts[(*scope, "blob_bytes")] += size
    return counts


def _insert_blobs(tx: Tx, results: Sequence[Result]) -> set[tuple[str, str]]:
    rows: list[Row] = []
    for (lease, _, _), made in results:
        for _, artifact in made:
            b = artifact.blob
            rows.append((*lease.scope, b.sha256, b.size_bytes, b.backend, b.pointer, b.content_type, tx.now))
    return {(project, sha256) for project, sha256 in tx.many("blob_insert", rows)}


def _put_versions(tx: Tx, results: Sequence[Result]) -> dict[str, str]:
    """Remember what each URL gave; give, by new artifact, the one it gave before."""
    rows: list[Row] = []
    for (lease, row, outcome), made in results:
        if row.job_type == DOWNLOAD and row.canonical_url and made:
            artifact_id, artifact = made[0]
            seen = outcome.validators
            rows.append(
                (
                    *lease.scope,
                    row.canonical_url,
                    artifact.blob.sha256,
                    artifact.blob.size_bytes,
                    seen.etag if seen else None,
                    seen.last_modified if seen else None,
                    outcome.final_url,
                    artifact_id,
                    lease.job_id,
                    tx.now,
                )
            )
    return {new: old for new, old in tx.many("url_version_put", rows) if old is not None}


def _artifact_rows(result: Result, previous: dict[str, str], now: int) -> list[Row]:
    (lease, _, _), made = result
    rows = []
    for artifact_id, new in made:
        b = new.blob
        metadata = encoded(redacted(new.metadata)) if new.metadata else None
        rows.append(
            (
                *lease.scope,
                artifact_id,
                new.artifact_type,
                b.backend,
                b.pointer,
                b.content_type,
                b.size_bytes,
                b.sha256,
                new.schema_version,
                new.name,
                metadata,
                now,
                lease.job_id,
                previous.get(artifact_id),
            )
        )
    return rows


def _confirmation(result: Result, now: int) -> Row:
    (lease, _, _), made = result
    artifact_id, artifact = made[0]
    text = f'{{"code":"OK","sha256":"{artifact.blob.sha256}","size":{artifact.blob.size_bytes},"artifact_id":"{artifact_id}"}}'
    return (now, text, *lease.scope, lease.job_id, lease.epoch)


def reuse(tx: Tx, lease: Lease, row: Fenced, outcome: Reused) -> LongshoreError | None:
    """Link a skipped job to the artifact of the job that has it; say why if there is no such thing."""
    if outcome.of_job_id == lease.job_id:
        return BadInput(f"job {lease.job_id} cannot reuse itself")
    where = {"tenant_id": lease.scope.tenant_id, "project_id": lease.scope.project_id}
    if tx.one("reuse_found", job_id=outcome.of_job_id, artifact_id=outcome.artifact_id, **where) is None:
        return NotFound(f"job {outcome.of_job_id[:80]} has no result {outcome.artifact_id[:80]}")
    tx.many("job_artifact_insert", [(*lease.scope, lease.job_id, "result", 0, outcome.artifact_id)])
    if row.canonical_url:
        revalidated = (tx.now, *lease.scope, row.canonical_url, outcome.artifact_id)
        tx.many("url_version_revalidated", [revalidated])
    return None


def mark_missing(tx: Tx, scope: Scope, artifact_ids: Sequence[str]) -> int:
    """Say of artifacts that their bytes are gone; give how many changed."""
    return _mark(tx, scope, artifact_ids, "missing")


def mark_available(tx: Tx, scope: Scope, artifact_ids: Sequence[str]) -> int:
    """Say of artifacts that their bytes are back."""
    return _mark(tx, scope, artifact_ids, "available")


def _mark(tx: Tx, scope: Scope, artifact_ids: Sequence[str], availability: str) -> int:
    check_scope(scope)
    tx.enter(scope.tenant_id)
    changed = tx.many("artifact_mark", [(availability, *scope, artifact_id) for artifact_id in artifact_ids])
    tx.many(
        "event_insert",
        [(*scope, job, f"artifact_{availability}", tx.now, encoded({"artifact": name})) for name, job in changed],
    )
    mark_assets(tx, scope, [name for name, _ in changed], availability)
    return len(changed)
