"""What the engine asks the ledger beside its verbs; reads only, in `sql/engine.sql`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from longshore.domain.model import Artifact, Job, Micros, Scope, Status
from longshore.domain.politeness import NEVER
from longshore.ledger.rows import artifact_of, job_of
from longshore.ledger.statements import register
from longshore.ledger.tx import Tx

register(Path(__file__).parent / "sql")


SCOPES: Final = 20  # of which a run over all tenants tells what they wait for


class Standing(NamedTuple):
    """How a job stands; a tenth of a `Job`, for whoever asks for thousands."""

    job_id: str
    url: str | None
    status: Status
    reason: str | None
    message: str | None
    attempts: int


def work_due(tx: Tx, scope: Scope | None, job_types: Sequence[str]) -> Micros | None:
    """Tell when the next job of these types can be claimed; None: nothing is left."""
    tenant, project = scope or (None, None)
    row = tx.one("work_due", tenant_id=tenant, project_id=project, job_types=json.dumps(list(job_types)), now=tx.now)
    return row[0] if row else None


def active_due(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> Micros | None:
    """Tell when the next of these jobs can be claimed; None: all of them are over."""
    tx.enter(scope.tenant_id)
    row = tx.one("active_due", **scope._asdict(), job_ids=json.dumps(list(job_ids)))
    return row[0] if row else None


class Wait(NamedTuple):
    """Jobs that wait for the same thing."""

    host: str | None  # None: for other workers
    reason: str
    until: Micros | None  # when that may be over; None: when a person says so
    jobs: int


def waits(tx: Tx, scope: Scope | None, owner: str, many: int = 5) -> list[Wait]:
    """Tell what a run waits for: hosts that rest or are full, times to wait, leases of other workers. Most jobs first."""
    found: list[Wait] = []
    for where in [scope] if scope else scopes_known(tx)[:SCOPES]:
        tx.enter(where.tenant_id)
        for name in ("waits_parked", "waits_timed"):
            now = {"now": tx.now} if name == "waits_parked" else {}
            for host, reason, until, jobs in tx.all(name, many=many, **now, **where._asdict()):
                if jobs:
                    found.append(Wait(host or None, reason or "host_busy", None if until >= NEVER else until, jobs))
        row = tx.one("waits_leased", owner=owner, **where._asdict())
        if row and row[0]:
            found.append(Wait(None, "leased", row[1], row[0]))
    return sorted(found, key=lambda wait: -wait.jobs)[:many]


def stops_wanted(tx: Tx, owner: str) -> list[str]:
    """Name the jobs of one owner that somebody asked to stop."""
    return [row[0] for row in tx.all("stops_wanted", owner=owner)]


def referenced(tx: Tx, scope: Scope, hashes: Sequence[str]) -> set[str]:
    """Tell which hashes a row names, or an intent that may become one."""
    tx.enter(scope.tenant_id)
    named = {str(row[0]) for row in tx.many("hashes_named", [(*scope, sha256) for sha256 in hashes])}
    left = [(*scope, sha256) for sha256 in hashes if sha256 not in named]
    return named | {str(row[0]) for row in tx.many("hashes_intended", left)}


def artifacts_after(tx: Tx, scope: Scope, after: str, many: int) -> list[Artifact]:
    """Give the next page of a tenant and project's artifacts."""
    tx.enter(scope.tenant_id)
    return [artifact_of(row) for row in tx.all("artifacts_after", after=after, many=many, **scope._asdict())]


def artifacts_between(
    tx: Tx, scope: Scope, hashes: tuple[str, str], after: tuple[str, str], many: int
) -> list[Artifact]:
    """Give the next page of the artifacts with hashes from one to below another, after (hash, artifact)."""
    tx.enter(scope.tenant_id)
    where = {"low": hashes[0], "high": hashes[1], "after": after[0], "after_id": after[1], "many": many}
    return [artifact_of(row) for row in tx.all("artifacts_between", **where, **scope._asdict())]


def blobs_counted(tx: Tx) -> int:
    """Tell how many blobs there are, of all tenants, by the counters."""
    count = 0
    for scope in scopes_known(tx):
        tx.enter(scope.tenant_id)
        row = tx.one("blobs_counted", **scope._asdict())
        count += int(row[0]) if row else 0
    return count


def anything_available(tx: Tx) -> bool:
    """Tell whether the registry says of any artifact, of any tenant, that its bytes are there."""
    for scope in scopes_known(tx):
        tx.enter(scope.tenant_id)
        if tx.one("anything_available", **scope._asdict()):
            return True
    return False


def jobs_named(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> dict[str, Job]:
    """Give named jobs by their ids, in one statement."""
    tx.enter(scope.tenant_id)
    rows = tx.all("jobs_named", job_ids=json.dumps(list(job_ids)), **scope._asdict())
    return {job.job_id: job for job in map(job_of, rows)}


def standings(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> dict[str, Standing]:
    """Tell how named jobs stand, in one statement."""
    tx.enter(scope.tenant_id)
    rows = tx.all("standings", job_ids=json.dumps(list(job_ids)), **scope._asdict())
    words = {status.value: status for status in Status}
    return {row[0]: Standing(row[0], row[1], words[row[2]], *row[3:]) for row in rows}


def attempts_named(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> dict[str, int]:
    """Tell how many attempts named jobs took."""
    tx.enter(scope.tenant_id)
    return dict(tx.all("attempts_named", job_ids=json.dumps(list(job_ids)), **scope._asdict()))


def results_named(tx: Tx, scope: Scope, job_ids: Sequence[str]) -> dict[str, list[Artifact]]:
    """Give the results of named jobs, in one statement."""
    tx.enter(scope.tenant_id)
    found: dict[str, list[Artifact]] = {}
    for row in tx.all("results_named", job_ids=json.dumps(list(job_ids)), **scope._asdict()):
        found.setdefault(row[-1], []).append(artifact_of(row[:-1]))
    return found


def scopes_known(tx: Tx) -> list[Scope]:
    """Name every tenant and project that has or had a job."""
    return [Scope(*row) for row in tx.all("scopes_known")]
