"""Reading one thing by its name."""

from __future__ import annotations

from collections.abc import Sequence

from longshore.domain.keys import check_text
from longshore.domain.model import Artifact, Job, Scope, Status, UrlVersion, Validators
from longshore.errors import NotFound
from longshore.ledger.rows import artifact_of, check_scope, encoded, job_of
from longshore.ledger.tx import Tx


def job(tx: Tx, scope: Scope, job_id: str) -> Job:
    """Give one job, or raise NotFound."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    row = tx.one("job_row", job_id=check_text("job_id", job_id), **scope._asdict())
    if row is None:
        raise NotFound(
            f"there is no job {job_id[:80]} here", hint="`longshore jobs` lists them, each with its whole id"
        )
    return job_of(row)


def current_job(tx: Tx, scope: Scope, job_type: str, key: str) -> Job | None:
    """Give the job that a key means now."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    rows = tx.all("plan_find", job_type=job_type, keys=encoded([check_text("key", key)]), **scope._asdict())
    return job(tx, scope, rows[0][1]) if rows else None


def counts(tx: Tx, scope: Scope) -> dict[Status, int]:
    """Give the number of jobs of each status."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    have = {row[0]: int(row[1]) for row in tx.all("counts", **scope._asdict())}
    return {status: have.get(status.value, 0) for status in Status}


def results(tx: Tx, scope: Scope, job_id: str, *, role: str = "result") -> list[Artifact]:
    """Give the result (or input) artifacts of a job, in order."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    rows = tx.all("job_results", job_id=check_text("job_id", job_id), role=role, **scope._asdict())
    return [artifact_of(row) for row in rows]


def url_versions(tx: Tx, scope: Scope, canonical_urls: Sequence[str]) -> dict[str, UrlVersion]:
    """Give what URLs last gave, by URL; those that never did are not in it."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    rows = tx.many("url_versions", [(*scope, check_text("canonical_url", url)) for url in canonical_urls])
    return {
        row[0]: UrlVersion(
            canonical_url=row[0],
            sha256=row[1],
            validators=Validators(row[2], row[3]),
            size_bytes=row[4],
            seen_at=row[5],
            revalidated_at=row[6],
            artifact_id=row[7],
            job_id=row[8],
            final_url=row[9],
            caller=row[10],
            vary=row[11],
        )
        for row in rows
    }


def url_version(tx: Tx, scope: Scope, canonical_url: str) -> UrlVersion | None:
    """Give what one URL last gave."""
    return url_versions(tx, scope, [canonical_url]).get(canonical_url)


def held(tx: Tx, scope: Scope, sha256: str) -> Artifact | None:
    """Give an available artifact with these bytes."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    row = tx.one("held", sha256=check_text("sha256", sha256), **scope._asdict())
    return artifact_of(row) if row else None
