"""Reading one thing by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from longshore.domain.identity.keys import check_text
from longshore.domain.model import Artifact, Job, Scope, Status, UrlVersion, Validators
from longshore.errors import BadInput, NotFound
from longshore.ledger.named_rows import KnownRow, UrlVersionRow
from longshore.ledger.rows import artifact_of, check_scope, encoded, job_of
from longshore.ledger.transaction import Tx

PAGE: Final = 10_000
_HAVE_RESULTS: Final = frozenset({Status.COMPLETED, Status.SKIPPED})


def job(tx: Tx, scope: Scope, job_id: str) -> Job:
    """Return one job, or raise NotFound."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    row = tx.one("job_row", job_id=check_text("job_id", job_id), **scope._asdict())
    if row is None:
        raise NotFound(f"job {job_id[:80]} not found", hint="`longshore jobs` lists all jobs with their full ids")
    return with_results(tx, scope, [job_of(row)])[0]


def with_results(tx: Tx, scope: Scope, jobs: Sequence[Job]) -> list[Job]:
    """Return jobs with the ids of their results. The caller has entered the scope."""
    done = [job.job_id for job in jobs if job.status in _HAVE_RESULTS]
    if not done:
        return list(jobs)
    found: dict[str, list[str]] = {}
    for job_id, artifact_id in tx.all("result_ids", job_ids=encoded(done), **scope._asdict()):
        found.setdefault(job_id, []).append(artifact_id)
    return [replace(job, results=tuple(ids)) if (ids := found.get(job.job_id)) else job for job in jobs]


def ids_like(tx: Tx, scope: Scope, short: str, at_most: int) -> list[str]:
    """Return the ids of jobs that begin or end with `short`, which has hexadecimal digits and dashes only.

    Ids sort by time, so jobs of one list begin alike: only the end of an id is short and unique.
    """
    check_scope(scope)
    tx.enter(scope.tenant_id)
    wanted = {"beginning": f"{short}%", "ending": f"%{short}", "many": at_most}
    return [str(job_id) for (job_id,) in tx.all("job_ids_like", **wanted, **scope._asdict())]


def current_job(tx: Tx, scope: Scope, job_type: str, key: str) -> Job | None:
    """Return the job that a key means now."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    rows = tx.all("plan_find", job_type=job_type, keys=encoded([check_text("key", key)]), **scope._asdict())
    return job(tx, scope, KnownRow._make(rows[0]).job_id) if rows else None


def current_keys(tx: Tx, scope: Scope, job_type: str, keys: Sequence[str]) -> set[str]:
    """Return the keys that a job has now."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    rows = tx.all("plan_find", job_type=job_type, keys=encoded(list(keys)), **scope._asdict()) if keys else []
    return {KnownRow._make(row).idempotency_key for row in rows}


def counts(tx: Tx, scope: Scope) -> dict[Status, int]:
    """Return the number of jobs of each status."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    have = {status: int(count) for status, count in tx.all("counts", **scope._asdict())}
    return {status: have.get(status.value, 0) for status in Status}


def results(tx: Tx, scope: Scope, job_id: str, *, role: str = "result") -> list[Artifact]:
    """Return the result (or input) artifacts of a job, in order."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    rows = tx.all("job_results", job_id=check_text("job_id", job_id), role=role, **scope._asdict())
    return [artifact_of(row) for row in rows]


def url_versions(tx: Tx, scope: Scope, canonical_urls: Sequence[str]) -> dict[str, UrlVersion]:
    """Return what URLs last gave, by URL; those that never did are not in it."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    rows = tx.many("url_versions", [(*scope, check_text("canonical_url", url)) for url in canonical_urls])
    return {
        row.canonical_url: UrlVersion(
            canonical_url=row.canonical_url,
            sha256=row.sha256,
            validators=Validators(row.etag, row.last_modified),
            size_bytes=row.byte_size,
            seen_at=row.seen_at,
            revalidated_at=row.revalidated_at,
            artifact_id=row.artifact_id,
            job_id=row.job_id,
            final_url=row.final_url,
            caller=row.caller,
            vary=row.vary,
        )
        for row in map(UrlVersionRow._make, rows)
    }


def url_version(tx: Tx, scope: Scope, canonical_url: str) -> UrlVersion | None:
    """Return what one URL last gave."""
    return url_versions(tx, scope, [canonical_url]).get(canonical_url)


def held(tx: Tx, scope: Scope, sha256: str) -> Artifact | None:
    """Return an available artifact with these bytes."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    row = tx.one("held", sha256=check_text("sha256", sha256), **scope._asdict())
    return artifact_of(row) if row else None


def current_ids(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> list[str]:
    """Return those of the jobs that no retry has replaced, in the given order."""
    tx.enter(scope.tenant_id)
    rows = tx.all("current_ids", job_ids=encoded(list(job_ids)), **scope._asdict()) if job_ids else []
    current = {name for name, *_ in rows}
    return [job_id for job_id in job_ids if job_id in current]


def artifact(tx: Tx, scope: Scope, artifact_id: str) -> Artifact:
    """Return one artifact, or raise NotFound."""
    row = tx.one("artifact_row", artifact_id=check_text("artifact_id", artifact_id), **scope_values(tx, scope))
    if row is None:
        raise NotFound(f"artifact {artifact_id[:80]} not found")
    return artifact_of(row)


def projects(tx: Tx, tenant_id: str) -> list[str]:
    """Return the projects of a tenant that ever had a job or an artifact."""
    check_scope(Scope(tenant_id, "any"))
    tx.enter(tenant_id)
    return [str(name) for (name,) in tx.all("projects_of", tenant_id=tenant_id)]


def scope_values(tx: Tx, scope: Scope) -> dict[str, Any]:
    """Enter a scope and return its values for a statement."""
    check_scope(scope)
    tx.enter(scope.tenant_id)
    return scope._asdict()


def checked_limit(limit: object) -> int:
    """Return a limit as a number of rows; raise BadInput if it is not one."""
    if type(limit) is not int or not 1 <= limit <= PAGE:
        raise BadInput(f"a page has 1 to {PAGE} entries, not {limit!r}")
    return limit
