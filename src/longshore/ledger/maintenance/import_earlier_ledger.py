"""Import the jobs of earlier ledgers: v1 tables `artifact_jobs`/`artifact_ops`, or a table `downloads`.

Every row becomes a job with the v1 key. Its file is adopted only after `take` has verified and stored it; a row whose
file is missing, changed or unknown stays planned and is fetched again. The import is idempotent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import apsw

from longshore.domain.identity.requests import download_request
from longshore.domain.model import SECOND, Blob, JobRequest, Lease, NewArtifact, Scope, Status
from longshore.domain.outcomes import Completed, Outcome, Released
from longshore.domain.settings import HostsSettings
from longshore.errors import BadInput, Damaged, LongshoreError, NoDepot
from longshore.ledger.ledger import Ledger
from longshore.ledger.operations import planning
from longshore.ledger.statements import statements

Take = Callable[[Lease, Path, str], Blob]  # verify a file by its SHA-256 and store it; raises LongshoreError
BATCH: Final = 200
_COMPLETED, _SKIPPED = Status.COMPLETED, Status.SKIPPED
_TTL_S: Final = 600
_RENEW: Final = 60 * SECOND
_FREE: Final = HostsSettings(concurrency=1 << 30, breaker_failures=0)


@dataclass(frozen=True, slots=True)
class Old:
    """One row of an earlier ledger."""

    work_id: str
    artifact_id: str
    url: str
    path: str | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Backfilled:
    """Counts of an import. `refused` lists rows that do not describe a download, each with the reason."""

    adopted: int = 0
    planned: int = 0  # no file that could be verified: they will be fetched
    known: int = 0  # were completed before
    refused: tuple[str, ...] = ()


def backfill(ledger: Ledger, source: Path, scope: Scope, take: Take, *, root: Path, owner: str) -> Backfilled:
    """Adopt an earlier ledger; paths in it are relative to `root` unless absolute."""
    total = Backfilled()
    rows = read_old(source)
    while batch := list(islice(rows, BATCH)):
        total = _adopt(ledger, batch, scope, take, root, owner, total)
    return total


def preview(
    ledger: Ledger, source: Path, scope: Scope, has_bytes: Callable[[Path, str], bool], *, root: Path
) -> Backfilled:
    """Count what `backfill` would do; `has_bytes` compares a file with a SHA-256."""
    total = Backfilled()
    rows = read_old(source)
    while batch := list(islice(rows, BATCH)):
        requests, olds, refused = _requests(batch)
        there = ledger.read(planning.preview, scope, requests)
        left = [
            old for old, job in zip(olds, there, strict=True) if job is None or job.status not in (_COMPLETED, _SKIPPED)
        ]
        adopted = sum(bool(old.path and old.sha256) and has_bytes(*_file(old, root)) for old in left)
        total = replace(
            total,
            adopted=total.adopted + adopted,
            planned=total.planned + len(left) - adopted,
            known=total.known + len(olds) - len(left),
            refused=total.refused + refused,
        )
    return total


def _requests(batch: list[Old]) -> tuple[list[JobRequest], list[Old], tuple[str, ...]]:
    """Return the requests of a batch with their rows, and why the others are refused."""
    requests, olds, refused = [], [], []
    for old in batch:
        try:
            requests.append(download_request(old.url, work_id=old.work_id, artifact_id=old.artifact_id))
            olds.append(old)
        except BadInput as error:
            refused.append(f"{old.work_id!r}, {old.artifact_id!r}: {error}")
    return requests, olds, tuple(refused)


def _file(old: Old, root: Path) -> tuple[Path, str]:
    return root / str(old.path), str(old.sha256).lower()


def read_old(source: Path) -> Iterator[Old]:
    """Read the rows of an earlier ledger, whichever of the two shapes it has (or both)."""
    if not source.is_file():
        raise NoDepot(f"no earlier ledger found at {source}")
    try:
        connection = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        tables = {row[0] for row in connection.execute(_sql("earlier_tables"))}
        if not tables & {"artifact_jobs", "downloads"}:
            raise BadInput(f"{source} has neither artifact_jobs nor downloads")
        if "artifact_jobs" in tables:
            yield from _from_jobs(connection, has_ops="artifact_ops" in tables)
        if "downloads" in tables:
            yield from _from_downloads(connection)
        connection.close()
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise Damaged(f"{source}: {error}") from error


def _sql(name: str) -> str:
    return statements("sqlite")[name].text


def _from_jobs(connection: apsw.Connection, *, has_ops: bool) -> Iterator[Old]:
    for job_id, work_id, artifact_id, url in connection.execute(_sql("earlier_jobs")):
        facts: dict[str, Any] = {}
        if has_ops:
            for (text,) in connection.execute(_sql("earlier_results"), {"job_id": job_id}):
                facts |= _object(text)
        yield Old(work_id, artifact_id, url, facts.get("final_path"), facts.get("sha256"))


def _from_downloads(connection: apsw.Connection) -> Iterator[Old]:
    names = [name for (name,) in connection.execute(_sql("earlier_columns"))]
    url = "canonical_url" if "canonical_url" in names else "url"
    wanted = ("work_id", "artifact_id", url, "path", "sha256")
    if missing := set(wanted) - set(names):
        raise BadInput(f"the table downloads has no {', '.join(sorted(missing))}")
    places = [names.index(name) for name in wanted]
    for row in connection.execute(_sql("earlier_downloads")):
        yield Old(*(row[place] for place in places))


def _object(text: object) -> dict[str, Any]:
    """Parse a result; earlier versions truncated long ones, so not every result is valid JSON."""
    try:
        value = json.loads(str(text))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _adopt(
    ledger: Ledger, batch: list[Old], scope: Scope, take: Take, root: Path, owner: str, total: Backfilled
) -> Backfilled:
    requests, olds, refused = _requests(batch)
    planned = ledger.plan(scope, requests)
    known = sum(item.status in (_COMPLETED, _SKIPPED) for item in planned)
    wanted = {item.job_id: old for item, old in zip(planned, olds, strict=True) if item.status is Status.PENDING}
    files = {job_id: root / old.path for job_id, old in wanted.items() if old.path and old.sha256}
    leases = ledger.claim(
        owner,
        limit=len(files),
        ttl_s=_TTL_S,
        scope=scope,
        job_ids=[j for j in files if files[j].is_file()],
        defaults=_FREE,
    )
    ended: list[tuple[Lease, Outcome]] = []
    renewed_at = ledger.now()
    for lease in leases:
        if ledger.now() - renewed_at > _RENEW:  # large files may take longer than one lease
            ledger.renew(leases, _TTL_S)
            renewed_at = ledger.now()
        ended.append((lease, _verified(lease, files[lease.job_id], str(wanted[lease.job_id].sha256), take)))
    done = sum(
        not isinstance(answer, LongshoreError) and answer.status is Status.COMPLETED for answer in ledger.settle(ended)
    )
    return replace(
        total,
        adopted=total.adopted + done,
        planned=total.planned + len(wanted) - done,
        known=total.known + known,
        refused=total.refused + refused,
    )


def _verified(lease: Lease, path: Path, sha256: str, take: Take) -> Outcome:
    """Take a file in, or leave its job to be fetched."""
    try:
        blob = take(lease, path, sha256.lower())
    except (LongshoreError, OSError):
        return Released("interrupted")
    facts = {"backfill": path.name}
    made = NewArtifact(blob, name=path.name)
    return Completed((made,), facts=facts) if blob.sha256 == sha256.lower() else Released("interrupted")
