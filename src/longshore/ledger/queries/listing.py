"""List jobs and artifacts by keyset pages. The time of a page depends on what it returns.

A filter without an index of its own looks at a bounded number of rows per page: such a page may be short, or empty, and
still name a next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from longshore.domain.identity.keys import check_text
from longshore.domain.identity.labels import wanted_labels
from longshore.domain.kinds import kind_of
from longshore.domain.model import Artifact, Job, Micros, Scope, Status
from longshore.errors import BadInput
from longshore.ledger.named_rows import JobRow
from longshore.ledger.queries.lookup import checked_limit, counts, scope_values, with_results
from longshore.ledger.rows import artifact_of, encoded, job_of
from longshore.ledger.transaction import Tx

T = TypeVar("T")
SCAN: Final = 2_000  # rows that one page of a filtered list looks at, per status
_TOP: Final = 1 << 62
_LAST_ID: Final = "~"
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def _status(word: Status | str) -> Status:
    try:
        return Status(word)
    except ValueError:
        raise BadInput(f"not a status: {str(word)[:40]!r}", hint="one of " + ", ".join(Status)) from None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs. Nothing named means all; `url` and `canonical_url` are the same.

    `parameters`: jobs of declared types with these values at the top level of their parameters. `metadata`: jobs with a
    result whose metadata has these values. Both are looked up by an index.
    """

    status: Status | str | None = None  # a Status, or its word
    statuses: Sequence[Status | str] = ()  # any of these
    stage: str | None = None
    reason: str | None = None
    host: str | None = None
    url: str | None = None
    canonical_url: str | None = None
    work_id: str | None = None
    job_type: str | None = None
    run_id: str | None = None
    updated_after: Micros | None = None
    current: bool = False  # only jobs that no retry has replaced
    oldest_first: bool = False
    parameters: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Accept the word for a status; refuse any other word, which would match nothing."""
        object.__setattr__(self, "status", None if self.status is None else _status(self.status))
        object.__setattr__(self, "statuses", tuple(map(_status, self.statuses)))

    def wanted_statuses(self) -> tuple[Status, ...]:
        """Return the statuses that can match, all of them when none is named."""
        named = (*self.statuses, *((self.status,) if self.status else ()))
        return tuple(dict.fromkeys(map(Status, named))) or tuple(Status)

    def reads_many(self) -> bool:
        """Return whether rows are read that do not match: only the status has counters and an order of its own."""
        return bool(self.parameters or self.metadata) or any(value is not None for value in self.params().values())

    def params(self) -> dict[str, Any]:
        """Return the parameters of the statements' common part."""
        return {
            "job_type": self.job_type,
            "stage": self.stage,
            "reason": self.reason,
            "host": self.host,
            "url": self.url or self.canonical_url,
            "run_id": self.run_id,
            "work_id": self.work_id,
            "updated_after": self.updated_after,
            "current": 1 if self.current else None,
        }


@dataclass(frozen=True, slots=True)
class ArtifactFilter:
    """Which artifacts. `metadata`: those with these values at the top level of their metadata, looked up by an index."""

    sha256: str | None = None
    url: str | None = None
    work_id: str | None = None
    artifact_type: str | None = None
    availability: str | None = None
    metadata: Mapping[str, Any] | None = None

    def reads_many(self) -> bool:
        """Return whether rows may be read that do not match."""
        return any((self.url, self.work_id, self.artifact_type, self.availability, self.metadata))


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list and the cursor of the next page; None on the last page."""

    items: list[T]
    next: str | None


def jobs(tx: Tx, scope: Scope, wanted: JobFilter, *, after: str | None = None, limit: int = 100) -> Page[Job]:
    """Return one page of the jobs that match, newest first unless the filter says otherwise."""
    rows, following = _rows(tx, scope, wanted, _edge(after, wanted), checked_limit(limit))
    return Page(with_results(tx, scope, [job_of(row) for row in rows]), None if following is None else str(following))


def _edge(after: str | None, wanted: JobFilter) -> int:
    if after is None:
        return 0 if wanted.oldest_first else _TOP
    if not (isinstance(after, str) and after.isascii() and after.isdigit() and len(after) < 19):
        raise BadInput(f"not a cursor: {str(after)[:40]!r}")
    return int(after)


def _artifact_edge(after: str) -> str:
    if not _ID.match(check_text("cursor", after, limit=100)):
        raise BadInput(f"not a cursor: {after[:40]!r}")
    return after


def _rows(tx: Tx, scope: Scope, wanted: JobFilter, edge: int, limit: int) -> tuple[list[JobRow], int | None]:
    """Return the rows of one page and the edge of the next."""
    where = scope_values(tx, scope) | wanted.params() | {"edge": edge, "many": limit + 1}
    order = "oldest" if wanted.oldest_first else "newest"
    if wanted.parameters or wanted.metadata:
        rows = [JobRow._make(row) for row in tx.all(f"jobs_of_labels_{order}", **_labels(wanted), **where)]
        return rows[:limit], rows[limit - 1].seq if len(rows) > limit else None
    if wanted.work_id is not None and "://" not in wanted.work_id:
        named = encoded([status.value for status in wanted.wanted_statuses()])
        rows = [JobRow._make(row) for row in tx.all(f"jobs_of_work_{order}", statuses=named, **where)]
        return rows[:limit], rows[limit - 1].seq if len(rows) > limit else None
    where["scan"] = scan = max(SCAN, limit + 1)
    plain = not wanted.reads_many()
    kind, looks = _looks(wanted)
    found: list[JobRow] = []
    cut: list[int] = []  # the last row of each query that stopped at its scan limit
    for look in looks:
        rows = [JobRow._make(row) for row in tx.all(f"{kind}_{order}", **where, **look)]
        found += rows
        if len(rows) <= limit and not plain:
            named_only = {name: where[name] for name in ("tenant_id", "project_id", "edge", "scan", *_NAMED[kind])}
            edge, seen = tx.one(f"{kind}_{order}_end", **named_only, **look) or (0, 0)
            if seen == scan:
                cut.append(edge)
    return _merged(found, cut, limit, oldest=wanted.oldest_first)


def _labels(wanted: JobFilter) -> dict[str, Any]:
    """Return the labels that are looked up: one through its index, the others of what that finds."""
    given = [("param", *one) for one in wanted_labels("parameter", wanted.parameters or {})]
    given += [("metadata", *one) for one in wanted_labels("metadata", wanted.metadata or {})]
    kind, name, value = given[0]
    statuses = encoded([status.value for status in wanted.wanted_statuses()])
    others = {
        one: encoded([_label(*rest) for kind, *rest in given[1:] if kind == one]) for one in ("param", "metadata")
    }
    found = {"label": name, "value": value, "kind": kind, "statuses": statuses}
    return {**found, "other_params": others["param"], "other_metadata": others["metadata"]}


def _label(name: str, value: str) -> str:
    """Return a label as the statements compare it."""
    return f"{len(name)}:{name}{value}"


_NAMED: Final = {
    "jobs": (),
    "jobs_of_type": ("job_type",),
    "jobs_failed": ("reason", "host"),
    "jobs_of_run": ("run_id",),
}


def _looks(wanted: JobFilter) -> tuple[str, list[dict[str, Any]]]:
    """Choose the index: where a filter has one, a page is full although the rows lie far apart."""
    statuses = wanted.wanted_statuses()
    if statuses == (Status.FAILED,) and wanted.reason is not None and wanted.host is not None:
        return "jobs_failed", [{"superseded": 0}, *([] if wanted.current else [{"superseded": 1}])]
    named = [{"status": status.value} for status in statuses]
    if wanted.run_id is not None:
        return "jobs_of_run", named
    typed = wanted.job_type is not None and not kind_of(wanted.job_type).common
    return ("jobs_of_type" if typed else "jobs"), named


def _merged(found: list[JobRow], cut: list[int], limit: int, *, oldest: bool) -> tuple[list[JobRow], int | None]:
    """Merge the rows of all queries in order, up to the point that every query has reached."""
    found.sort(key=lambda row: row.seq, reverse=not oldest)
    stop = (min(cut) if oldest else max(cut)) if cut else None
    if stop is not None:
        found = [row for row in found if (row.seq <= stop if oldest else row.seq >= stop)]
    if len(found) > limit:
        return found[:limit], found[limit - 1].seq
    return found, stop


def each_job(tx: Tx, scope: Scope, wanted: JobFilter) -> Iterator[JobRow]:
    """Go through the rows of all jobs that match."""
    edge: int | None = _edge(None, wanted)
    while edge is not None:
        rows, edge = _rows(tx, scope, wanted, edge, 1_000)
        yield from rows


def matching_ids(tx: Tx, scope: Scope, wanted: JobFilter, at_most: int) -> list[str]:
    """Return the jobs that match, at most so many."""
    found: list[str] = []
    for row in each_job(tx, scope, wanted):
        if len(found) >= at_most:
            break
        found.append(row.job_id)
    return found


def count_matching(tx: Tx, scope: Scope, wanted: JobFilter, at_most: int) -> int:
    """Count the jobs that match, up to a number; by the counters where only the status is asked for."""
    if not wanted.reads_many():
        kept = counts(tx, scope)
        return min(at_most, sum(kept[status] for status in wanted.wanted_statuses()))
    return len(matching_ids(tx, scope, wanted, at_most))


def artifacts(
    tx: Tx, scope: Scope, wanted: ArtifactFilter, *, after: str | None = None, limit: int = 100
) -> Page[Artifact]:
    """Return one page of the artifacts that match, newest first."""
    where = scope_values(tx, scope)
    edge = _LAST_ID if after is None else _artifact_edge(after)
    kind = {"artifact_type": wanted.artifact_type, "availability": wanted.availability}
    many = checked_limit(limit) + 1
    if wanted.metadata:
        (name, value), *others = wanted_labels("metadata", wanted.metadata)
        if wanted.url is not None or wanted.work_id is not None:
            raise BadInput("artifacts are looked up by their metadata, or by a URL or a work, not by both")
        labels = {"label": name, "value": value, "others": encoded([_label(*one) for one in others])}
        rows = tx.all("artifacts_of_label", edge=edge, many=many, sha256=wanted.sha256, **labels, **kind, **where)
    elif wanted.url is not None or (wanted.work_id is not None and "://" in wanted.work_id):
        url = check_text("url", wanted.url or wanted.work_id)
        rows = tx.all("artifacts_of_url", url=url, edge=edge, many=many, sha256=wanted.sha256, **kind, **where)
    elif wanted.work_id is not None:
        work = check_text("work_id", wanted.work_id)
        rows = tx.all("artifacts_of_work", work_id=work, edge=edge, many=many, sha256=wanted.sha256, **kind, **where)
    elif wanted.sha256 is not None:
        sha256 = check_text("sha256", wanted.sha256)
        rows = tx.all("artifacts_of_hash", sha256=sha256, edge=edge, many=many, **kind, **where)
    else:
        return _newest_artifacts(tx, where, edge, kind, limit)
    found = [artifact_of(row) for row in rows[:limit]]
    return Page(found, found[-1].artifact_id if len(rows) > limit else None)


def _newest_artifacts(
    tx: Tx, where: dict[str, Any], edge: str, kind: dict[str, str | None], limit: int
) -> Page[Artifact]:
    scan = max(SCAN, limit + 1)
    rows = tx.all("artifacts_newest", edge=edge, scan=scan, many=limit + 1, **kind, **where)
    found = [artifact_of(row) for row in rows[:limit]]
    following = found[-1].artifact_id if len(rows) > limit else None
    if following is None and any(kind.values()):
        last, seen = tx.one("artifacts_newest_end", edge=edge, scan=scan, **where) or (None, 0)
        following = last if seen == scan else None
    return Page(found, following)
