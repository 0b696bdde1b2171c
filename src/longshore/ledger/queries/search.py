"""Find jobs and artifacts by what a person has of them: an id, the beginning of a hash, a part of a name or URL.

Ids and hashes are looked up by an index. Parts of names are compared with a bounded number of jobs per page, newest first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from longshore.domain.identity.keys import check_text
from longshore.domain.model import Artifact, Job, Scope
from longshore.domain.policy.redaction import safe_source, safe_url
from longshore.errors import BadInput
from longshore.ledger.queries.due_work import jobs_named
from longshore.ledger.queries.lookup import ids_like, scope_values, with_results
from longshore.ledger.rows import artifact_of, job_of
from longshore.ledger.transaction import Tx

SCAN: Final = 20_000  # jobs that one page looks at
SHOWN: Final = 50
_TOP: Final = "~"
_ID_PART: Final = re.compile(r"[0-9a-f]{4,8}(-[0-9a-f]{0,12}){0,4}\Z|[0-9a-f]{4,12}\Z")
_HASH_PART: Final = re.compile(r"[0-9a-f]{6,64}\Z")
_CURSOR: Final = re.compile(r"[0-9a-f-]{36}\Z")


@dataclass(frozen=True, slots=True)
class Found:
    """What fits, and the job to look on from; None: nothing older is left."""

    jobs: list[Job]
    artifacts: list[Artifact]
    next: str | None


def search(tx: Tx, scope: Scope, text: str, *, after: str | None = None) -> Found:
    """Return the jobs and artifacts that fit a text."""
    wanted = check_text("text", text.strip(), limit=2_000).lower()
    if after is not None and not _CURSOR.match(after):
        raise BadInput(f"not a cursor: {after[:40]!r}")
    where = scope_values(tx, scope)
    jobs, following = _jobs_of_text(tx, scope, wanted, after or _TOP)
    if after is not None:
        return Found(jobs, [], following)
    named = _jobs_of_id(tx, scope, wanted)
    known = {job.job_id for job in named}
    return Found([*named, *(job for job in jobs if job.job_id not in known)], _artifacts(tx, where, wanted), following)


def _jobs_of_id(tx: Tx, scope: Scope, wanted: str) -> list[Job]:
    if not _ID_PART.match(wanted):
        return []
    ids = ids_like(tx, scope, wanted, SHOWN)
    found = jobs_named(tx, scope, ids)
    return with_results(tx, scope, [found[job_id] for job_id in ids if job_id in found])


def _jobs_of_text(tx: Tx, scope: Scope, wanted: str, edge: str) -> tuple[list[Job], str | None]:
    place = scope_values(tx, scope) | {"edge": edge, "scan": SCAN}
    rows = tx.all("jobs_of_text", part=_part(wanted), many=SHOWN + 1, **place)
    jobs = [job_of(row) for row in rows]
    shown = [job for job in jobs[:SHOWN] if _shows(job, wanted)]
    if len(jobs) > SHOWN:
        return with_results(tx, scope, shown), jobs[SHOWN - 1].job_id
    last, seen = tx.one("jobs_of_text_end", **place) or (None, 0)
    return with_results(tx, scope, shown), last if seen == SCAN else None


def _shows(job: Job, wanted: str) -> bool:
    """Return whether the text is in what may be shown of a job: a search must not spell out a secret of its URL."""
    request = job.request
    texts: Sequence[str | None] = (
        request.url and safe_url(request.url),
        request.canonical_url and safe_url(request.canonical_url),
        request.name,
        request.work_id and safe_url(request.work_id) if "://" in (request.work_id or "") else request.work_id,
        request.book_id,
        request.source and safe_source(request.source),
    )
    return any(wanted in text.lower() for text in texts if text)


def _artifacts(tx: Tx, where: dict[str, str], wanted: str) -> list[Artifact]:
    rows = []
    if _HASH_PART.match(wanted):
        rows += tx.all("artifacts_of_prefix", low=wanted, high=wanted + "g", many=SHOWN, **where)
    if _ID_PART.match(wanted):
        rows += tx.all("artifacts_of_id", low=wanted, high=wanted + "g", many=SHOWN, **where)
    rows += tx.all("artifacts_of_name", part=_part(wanted), scan=SCAN, many=SHOWN, **where)
    found = {artifact.artifact_id: artifact for artifact in map(artifact_of, rows)}
    return list(found.values())[:SHOWN]


def _part(wanted: str) -> str:
    """Return a text as a pattern of LIKE."""
    return "%" + re.sub(r"([~%_])", r"~\1", wanted) + "%"


def suggestions(tx: Tx, scope: Scope) -> tuple[list[str], list[str]]:
    """Return the reasons and the types of jobs that a project has."""
    where = scope_values(tx, scope)
    reasons = [str(name) for (name,) in tx.all("reasons_known", many=200, **where)]
    return reasons, [str(name) for (name,) in tx.all("types_known", scan=5_000, **where)]
