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
from longshore.domain.model import Blob, Lease, NewArtifact, Scope, Status
from longshore.domain.outcomes import Completed, Outcome, Released
from longshore.domain.settings import HostsSettings
from longshore.errors import BadInput, Damaged, LongshoreError, NoDepot
from longshore.ledger.ledger import Ledger
from longshore.ledger.statements import statements

Take = Callable[[Lease, Path, str], Blob]  # verify a file by its SHA-256 and store it; raises LongshoreError
BATCH: Final = 200
_TTL_S: Final = 600
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
    requests, olds, refused = [], [], list(total.refused)
    for old in batch:
        try:
            requests.append(download_request(old.url, work_id=old.work_id, artifact_id=old.artifact_id))
            olds.append(old)
        except BadInput as error:
            refused.append(f"{old.work_id!r}, {old.artifact_id!r}: {error}")
    planned = ledger.plan(scope, requests)
    known = sum(item.status in (Status.COMPLETED, Status.SKIPPED) for item in planned)
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
    ended = [(lease, _verified(lease, files[lease.job_id], str(wanted[lease.job_id].sha256), take)) for lease in leases]
    done = sum(
        not isinstance(answer, LongshoreError) and answer.status is Status.COMPLETED for answer in ledger.settle(ended)
    )
    return replace(
        total,
        adopted=total.adopted + done,
        planned=total.planned + len(wanted) - done,
        known=total.known + known,
        refused=tuple(refused),
    )


def _verified(lease: Lease, path: Path, sha256: str, take: Take) -> Outcome:
    """Take a file in, or leave its job to be fetched."""
    try:
        blob = take(lease, path, sha256.lower())
    except (LongshoreError, OSError):
        return Released("interrupted")
    facts = {"backfill": path.name}
    return Completed((NewArtifact(blob),), facts=facts) if blob.sha256 == sha256.lower() else Released("interrupted")
