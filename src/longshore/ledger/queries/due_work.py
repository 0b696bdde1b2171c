"""Read-only queries of the worker; their statements are in `sql/worker.sql`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from longshore.domain.model import Artifact, Job, Micros, Scope, Status
from longshore.domain.policy.host_limits import NEVER
from longshore.domain.settings import HostsSettings
from longshore.ledger.operations.hosts import resting_until
from longshore.ledger.queries.lookup import scope_values
from longshore.ledger.rows import artifact_of, job_of
from longshore.ledger.transaction import Tx

SCOPES: Final = 20  # of which a run over all tenants tells what they wait for

_WAITS: Final = {"waits_parked": ("now",), "waits_resting": ("now", "never"), "waits_timed": ()}  # and their parameters


class Standing(NamedTuple):
    """The status of a job: a tenth of the size of `Job`, for queries over thousands of jobs."""

    job_id: str
    url: str | None
    status: Status
    reason: str | None
    message: str | None
    attempts: int
    work_id: str | None


def work_due(tx: Tx, scope: Scope | None, job_types: Sequence[str]) -> Micros | None:
    """Return when the next job of these types can be claimed; None: nothing is left."""
    tenant, project = scope or (None, None)
    types = json.dumps(list(job_types))
    due: Micros | None
    (due,) = tx.one("work_due", tenant_id=tenant, project_id=project, job_types=types, now=tx.now) or (None,)
    return due


def active_due(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> Micros | None:
    """Return when the next of these jobs can be claimed; None: all of them are over."""
    tx.enter(scope.tenant_id)
    due: Micros | None
    (due,) = tx.one("active_due", **scope._asdict(), job_ids=json.dumps(list(job_ids))) or (None,)
    return due


class Wait(NamedTuple):
    """Jobs that wait for the same thing."""

    host: str | None  # None: for other workers
    reason: str
    until: Micros | None  # when that may be over; None: when a person says so
    jobs: int


def waits(tx: Tx, scope: Scope | None, owner: str, defaults: HostsSettings, many: int = 5) -> list[Wait]:
    """Return what a run waits for: hosts that rest or are full, times to wait, leases of other workers. Most jobs first."""
    found: dict[tuple[str | None, str], Wait] = {}
    known = {"now": tx.now, "never": NEVER}
    for where in [scope] if scope else scopes_known(tx)[:SCOPES]:
        tx.enter(where.tenant_id)
        for name, given in _WAITS.items():
            rows = tx.all(name, many=many, **{word: known[word] for word in given}, **where._asdict())
            for wait in _timed(tx, where.tenant_id, rows, defaults):
                _add_wait(found, wait)
        leased, until = tx.one("waits_leased", owner=owner, **where._asdict()) or (0, None)
        if leased:
            _add_wait(found, Wait(None, "leased", until, leased))
    return sorted(found.values(), key=lambda wait: -wait.jobs)[:many]


def waits_of(
    tx: Tx, scope: Scope, owner: str, defaults: HostsSettings, job_ids: Sequence[str], many: int = 5
) -> list[Wait]:
    """Return what named jobs wait for. Most jobs first."""
    tx.enter(scope.tenant_id)
    given = {"job_ids": json.dumps(list(job_ids)), "owner": owner, "now": tx.now, "never": NEVER, "many": many}
    return list(_timed(tx, scope.tenant_id, tx.all("waits_named", **given, **scope._asdict()), defaults))


def _timed(tx: Tx, tenant: str, rows: Iterable[Sequence[Any]], defaults: HostsSettings) -> Iterator[Wait]:
    """Make records of the rows. Where the host of a job rests beyond the job's own time, its rest counts; without a time
    nothing waits."""
    for host, reason, until, jobs in rows:
        rest = resting_until(tx, host, tenant, defaults=defaults) if host else None
        ends = max((end for end in (until, rest) if end is not None), default=None)
        if jobs and ends is not None:
            yield Wait(host or None, reason or "host_busy", None if ends >= NEVER else ends, jobs)


def _add_wait(found: dict[tuple[str | None, str], Wait], wait: Wait) -> None:
    """Add jobs to those that wait for the same thing; the first of them decides until when."""
    if (before := found.get(wait[:2])) is not None:
        ends = [until for until in (before.until, wait.until) if until is not None]
        wait = wait._replace(until=min(ends, default=None), jobs=before.jobs + wait.jobs)
    found[wait[:2]] = wait


def stops_wanted(tx: Tx, owner: str) -> list[str]:
    """Return the jobs of one owner whose cancellation was requested."""
    return [job_id for (job_id,) in tx.all("stops_wanted", owner=owner)]


def referenced(tx: Tx, scope: Scope, hashes: Sequence[str]) -> set[str]:
    """Return which hashes a row names, or an intent that may become one."""
    tx.enter(scope.tenant_id)
    named = {str(name) for (name,) in tx.many("hashes_named", [(*scope, sha256) for sha256 in hashes])}
    left = [(*scope, sha256) for sha256 in hashes if sha256 not in named]
    return named | {str(name) for (name,) in tx.many("hashes_intended", left)}


def settled_pointers(tx: Tx, scope: Scope, hashes: Sequence[str]) -> dict[str, set[str]]:
    """Return the pointers that rows have for these hashes, without hashes that are about to be published."""
    tx.enter(scope.tenant_id)
    keys = [(*scope, sha256) for sha256 in hashes]
    intended = {str(name) for (name,) in tx.many("hashes_intended", keys)}
    found: dict[str, set[str]] = {}
    for sha256, pointer in tx.many("pointers_named", keys):
        if sha256 not in intended:
            found.setdefault(str(sha256), set()).add(str(pointer))
    return found


def artifacts_after(tx: Tx, scope: Scope, after: str, many: int) -> list[Artifact]:
    """Return the next page of a tenant and project's artifacts."""
    tx.enter(scope.tenant_id)
    return [artifact_of(row) for row in tx.all("artifacts_after", after=after, many=many, **scope._asdict())]


def artifacts_between(
    tx: Tx, scope: Scope, hashes: tuple[str, str], after: tuple[str, str], many: int
) -> list[Artifact]:
    """Return the next page of the artifacts with hashes from one to below another, after (hash, artifact)."""
    tx.enter(scope.tenant_id)
    (low, high), (after_hash, after_id) = hashes, after
    where = {"low": low, "high": high, "after": after_hash, "after_id": after_id, "many": many}
    return [artifact_of(row) for row in tx.all("artifacts_between", **where, **scope._asdict())]


def blobs_counted(tx: Tx) -> int:
    """Return how many blobs there are, of all tenants, by the counters."""
    count = 0
    for scope in scopes_known(tx):
        tx.enter(scope.tenant_id)
        (blobs,) = tx.one("blobs_counted", **scope._asdict()) or (0,)
        count += int(blobs)
    return count


def anything_available(tx: Tx) -> bool:
    """Return whether the registry says of any artifact, of any tenant, that its bytes are there."""
    for scope in scopes_known(tx):
        tx.enter(scope.tenant_id)
        if tx.one("anything_available", **scope._asdict()):
            return True
    return False


def jobs_named(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> dict[str, Job]:
    """Return named jobs by their ids, in one statement."""
    tx.enter(scope.tenant_id)
    rows = tx.all("jobs_named", job_ids=json.dumps(list(job_ids)), **scope._asdict())
    return {job.job_id: job for job in map(job_of, rows)}


def standings(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> dict[str, Standing]:
    """Return how named jobs stand, in one statement."""
    tx.enter(scope.tenant_id)
    rows = tx.all("standings", job_ids=json.dumps(list(job_ids)), **scope._asdict())
    words = {status.value: status for status in Status}
    return {job_id: Standing(job_id, url, words[status], *rest) for job_id, url, status, *rest in rows}


def attempts_named(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> dict[str, int]:
    """Return how many attempts named jobs took."""
    tx.enter(scope.tenant_id)
    return dict(tx.all("attempts_named", job_ids=json.dumps(list(job_ids)), **scope._asdict()))


def results_named(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> dict[str, list[Artifact]]:
    """Return the results of named jobs, in one statement."""
    tx.enter(scope.tenant_id)
    found: dict[str, list[Artifact]] = {}
    for *columns, job_id in tx.all("results_named", job_ids=json.dumps(list(job_ids)), **scope._asdict()):
        found.setdefault(job_id, []).append(artifact_of(columns))
    return found


def scopes_known(tx: Tx) -> list[Scope]:
    """Return every tenant and project that has or had a job."""
    return [Scope(*row) for row in tx.all("scopes_known")]


def oldest_ready(tx: Tx, scope: Scope) -> Micros | None:
    """Return when the oldest ready job was planned."""
    planned_at: Micros | None
    (planned_at,) = tx.one("oldest_ready", **scope_values(tx, scope)) or (None,)
    return planned_at
