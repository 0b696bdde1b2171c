"""The registry of artifacts: bytes that exist get their immutable record, in the transaction that completes the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from longshore.domain.identity.keys import op_key
from longshore.domain.identity.labels import labels_of
from longshore.domain.identity.object_versions import caller_of
from longshore.domain.kinds import kind_of
from longshore.domain.model import Lease, NewArtifact, Scope
from longshore.domain.outcomes import Completed, Reused
from longshore.errors import BadInput, LongshoreError, NotFound
from longshore.ledger.event_facts import redacted
from longshore.ledger.ids import new_ids
from longshore.ledger.named_rows import FencedRow
from longshore.ledger.operations.kind_hooks import HOOKS
from longshore.ledger.operations.planning import add_counts
from longshore.ledger.rows import check_scope, encoded
from longshore.ledger.transaction import Row, Tx

Done = tuple[Lease, FencedRow, Completed]
NONE: Final = (None, None)
Result = tuple[Done, list[tuple[str, NewArtifact]]]


def register(tx: Tx, done: Sequence[Done]) -> list[tuple[tuple[str, ...], bool]]:
    """Write blobs, artifacts, links, URL versions and the FINALIZE results of a batch.

    Gives of each job its artifacts and whether all its bytes were there before.
    """
    ids = iter(new_ids(sum(len(outcome.artifacts) for _, _, outcome in done), tx.now))
    results: list[Result] = [
        (item, [(artifact_id, new) for new, artifact_id in zip(item[2].artifacts, ids, strict=False)]) for item in done
    ]
    answer: list[tuple[tuple[str, ...], bool]] = [((), False)] * len(results)
    for scope, places in _by_scope(results).items():
        part = [results[place] for place in places]
        fresh = _insert_blobs(tx, scope, part)
        previous = _put_versions(tx, scope, part)
        _insert_artifacts(tx, part, previous)
        _confirm_intents(tx, scope, part)
        add_counts(tx, _held(scope, part, fresh))
        for place, (_, made) in zip(places, part, strict=True):
            hashes = [new.blob.sha256 for _, new in made]
            answer[place] = (tuple(artifact_id for artifact_id, _ in made), bool(made) and fresh.isdisjoint(hashes))
            fresh.difference_update(hashes)  # the next one with these bytes is a duplicate of this one
    return answer


def _held(scope: Scope, results: Sequence[Result], fresh: set[str]) -> Counter[tuple[str, str, str]]:
    """Count the stored artifacts and their blobs. The difference is what deduplication saved."""
    sizes = [(new.blob.sha256, new.blob.size_bytes) for _, made in results for _, new in made]
    counts: Counter[tuple[str, str, str]] = Counter()
    counts[(*scope, "artifacts")] = len(sizes)
    counts[(*scope, "artifact_bytes")] = sum(size for _, size in sizes)
    counts[(*scope, "blobs")] = len(fresh)
    counts[(*scope, "blob_bytes")] = sum(size for sha256, size in dict(sizes).items() if sha256 in fresh)
    return counts


def _by_scope(results: Sequence[Result]) -> dict[Scope, list[int]]:
    scopes: dict[Scope, list[int]] = {}
    for place, ((lease, _, _), _) in enumerate(results):
        scopes.setdefault(lease.scope, []).append(place)
    return scopes


def _insert_blobs(tx: Tx, scope: Scope, results: Sequence[Result]) -> set[str]:
    """Insert the blobs that do not exist yet and return their hashes."""
    blobs = {new.blob.sha256: new.blob for _, made in results for _, new in made}
    if not blobs:
        return set()
    known = {sha256 for (sha256,) in tx.all("blobs_known", sha256s=encoded(list(blobs)), **scope._asdict())}
    fresh = [blob for sha256, blob in blobs.items() if sha256 not in known]
    rows = [(*scope, b.sha256, b.size_bytes, b.backend, b.pointer, b.content_type, tx.now) for b in fresh]
    tx.send("blob_insert", rows)
    return {blob.sha256 for blob in fresh}


def _put_versions(tx: Tx, scope: Scope, results: Sequence[Result]) -> dict[str, str]:
    """Store the current version of each URL; return the previous artifact by new artifact."""
    rows: list[Row] = []
    for (lease, row, outcome), made in results:
        if kind_of(row.job_type).of_url and row.canonical_url and made:
            artifact_id, new = made[0]
            etag, modified = (outcome.validators.etag, outcome.validators.last_modified) if outcome.validators else NONE
            what = (row.canonical_url, new.blob.sha256, new.blob.size_bytes, etag, modified, outcome.final_url)
            caller = caller_of(lease.job.request.headers) if outcome.caller is None else outcome.caller
            rows.append((*scope, *what, caller, outcome.vary, artifact_id, lease.job_id, tx.now))
    if not rows:
        return {}
    before: dict[str, str] = dict(
        tx.all("url_artifacts", urls=encoded([url for _, _, url, *_ in rows]), **scope._asdict())
    )
    previous: dict[str, str] = {}
    for _, _, url, *_, artifact_id, _, _ in rows:
        if url in before:
            previous[artifact_id] = before[url]
        before[url] = artifact_id
    for distinct in _rounds(rows):
        tx.send("url_version_put", distinct)
    return previous


def _rounds(rows: Sequence[Row]) -> list[list[Row]]:
    """Split rows so that no part names a URL twice; almost always one part."""
    rounds: list[dict[str, Row]] = [{}]
    for row in rows:
        url = row[2]
        free = next((known for known in rounds if url not in known), None)
        if free is None:
            rounds.append(free := {})
        free[url] = row
    return [list(known.values()) for known in rounds]


def _insert_artifacts(tx: Tx, results: Sequence[Result], previous: dict[str, str]) -> None:
    tx.send("artifact_insert", [row for result in results for row in _artifact_rows(result, previous, tx.now)])
    labels = [
        (*lease.scope, name, value, artifact_id)
        for (lease, _, _), made in results
        for artifact_id, new in made
        if new.metadata
        for name, value in labels_of(redacted(new.metadata))
    ]
    tx.send("artifact_label", labels)
    links = [
        (*lease.scope, lease.job_id, new.role, place, artifact_id)
        for (lease, _, _), made in results
        for place, (artifact_id, new) in enumerate(made)
    ]
    tx.send("job_artifact_insert", links)


def _confirm_intents(tx: Tx, scope: Scope, results: Sequence[Result]) -> None:
    """Confirm the FINALIZE intents of these attempts: what they meant to do is done."""
    jobs = {lease.job_id: (lease.epoch, made) for (lease, _, _), made in results if made}
    if not jobs:
        return
    rows = []
    for job_id, key, epoch in tx.all("finalize_open", job_ids=encoded(list(jobs)), **scope._asdict()):
        mine, made = jobs[job_id]
        if epoch == mine:
            artifact_id, new = made[0] if len(made) == 1 else _intended(job_id, key, made)
            text = f'{{"code":"OK","sha256":"{new.blob.sha256}","size":{new.blob.size_bytes},"artifact_id":"{artifact_id}"}}'
            rows.append((tx.now, text, *scope, job_id, key, epoch))
    tx.send("finalize_confirm", rows)


def _intended(job_id: str, key: str, made: list[tuple[str, NewArtifact]]) -> tuple[str, NewArtifact]:
    """Find the result that an intent named, among several."""
    return next((one for one in made if op_key("FINALIZE", job_id, sha256=one[1].blob.sha256) == key), made[0])


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


def reuse(tx: Tx, lease: Lease, row: FencedRow, outcome: Reused) -> LongshoreError | None:
    """Link a skipped job to the artifact of the job that has it; say why if there is no such thing."""
    if outcome.of_job_id == lease.job_id:
        return BadInput(f"job {lease.job_id} cannot reuse itself")
    where = {"tenant_id": lease.scope.tenant_id, "project_id": lease.scope.project_id}
    if tx.one("reuse_found", job_id=outcome.of_job_id, artifact_id=outcome.artifact_id, **where) is None:
        return NotFound(f"job {outcome.of_job_id[:80]} has no result {outcome.artifact_id[:80]}")
    # A job of a URL has one result; of another one all are taken over, in their order.
    results = tx.all("reuse_results", job_id=outcome.of_job_id, **where) if not kind_of(row.job_type).of_url else []
    named = [str(artifact_id) for (artifact_id,) in results] or [outcome.artifact_id]
    links = [(*lease.scope, lease.job_id, "result", place, artifact_id) for place, artifact_id in enumerate(named)]
    tx.send("job_artifact_insert", links)
    if row.canonical_url and outcome.revalidated:  # only an answer of the server makes old knowledge young
        revalidated = (tx.now, *lease.scope, row.canonical_url, outcome.artifact_id)
        tx.send("url_version_revalidated", [revalidated])
    return None


def mark_missing(tx: Tx, scope: Scope, artifact_ids: Sequence[str]) -> int:
    """Mark artifacts whose bytes are lost as missing; return how many changed."""
    return _mark(tx, scope, artifact_ids, "missing")


def mark_available(tx: Tx, scope: Scope, artifact_ids: Sequence[str]) -> int:
    """Mark artifacts whose bytes were found again as available."""
    return _mark(tx, scope, artifact_ids, "available")


def _mark(tx: Tx, scope: Scope, artifact_ids: Sequence[str], availability: str) -> int:
    check_scope(scope)
    tx.enter(scope.tenant_id)
    changed = tx.many("artifact_mark", [(availability, *scope, artifact_id) for artifact_id in artifact_ids])
    tx.send(
        "event_insert",
        [(*scope, job, f"artifact_{availability}", tx.now, encoded({"artifact": name})) for name, job in changed],
    )
    for hooks in HOOKS.values():
        hooks.availability_changed(tx, scope, [name for name, _ in changed])
    return len(changed)
