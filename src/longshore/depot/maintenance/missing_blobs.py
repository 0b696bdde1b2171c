"""Artifacts whose bytes are lost: each is marked, and fetched again by a linked job if the source is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from longshore.domain.kinds import Status, kind_of
from longshore.ledger.operations.artifact_registry import mark_missing
from longshore.ledger.operations.planning import plan, preview
from longshore.ledger.queries.due_work import jobs_named, results_named
from longshore.ledger.queries.lookup import held

if TYPE_CHECKING:
    from longshore.domain.model import Artifact, Job, Scope
    from longshore.ledger.transaction import Tx

PLAN: Final = "`longshore reconcile` plans jobs for lost bytes whose source is known, and `longshore run` fetches them"
_RUN: Final = "`longshore run` fetches what is planned"
_BRING: Final = "bytes without a source come back with `longshore put` or `longshore adopt` of the same file"


@dataclass(frozen=True, slots=True)
class Loss:
    """One artifact without its bytes, and the action taken."""

    artifact_id: str
    what_now: str  # ends a sentence
    remedy: str | None = None  # what the user has to do, if the sentence does not say it
    again: Job | None = None  # the job to be repeated


def told_losses(tx: Tx, scope: Scope, lost: Sequence[Artifact]) -> list[Loss]:
    """Return the possible action for each lost artifact; change nothing."""
    jobs = jobs_named(tx, scope, sorted({one.created_by_job_id for one in lost if one.created_by_job_id}))
    return [_judge(tx, scope, one, jobs.get(one.created_by_job_id or "")) for one in lost]


def mark_lost(tx: Tx, scope: Scope, lost: Sequence[Artifact]) -> list[Loss]:
    """Mark artifacts as missing and plan the jobs that fetch them again, in one transaction."""
    mark_missing(tx, scope, [one.artifact_id for one in lost if one.availability == "available"])
    losses = []
    for loss in told_losses(tx, scope, lost):
        if loss.again is None:
            losses.append(loss)
            continue
        (planned,) = plan(tx, scope, [replace(loss.again.request, retry_of=loss.again.job_id)], again="always")
        losses.append(replace(loss, what_now=f"job {planned.job_id} fetches them again", remedy=_RUN))
    return losses


def mark_damaged(tx: Tx, scope: Scope, sha256: str) -> int:
    """Mark every artifact of a blob that was found damaged as missing; return how many there were."""
    count = 0
    while (one := held(tx, scope, sha256)) is not None:
        mark_missing(tx, scope, [one.artifact_id])
        count += 1
    return count


def _judge(tx: Tx, scope: Scope, artifact: Artifact, job: Job | None) -> Loss:
    """Decide by the state of the key's current job; a failed one is not repeated automatically."""
    of_url = job is None or kind_of(job.job_type).of_url
    if job is None or not of_url or not job.request.url:
        where = "no job names a URL to fetch them from" if job is None or of_url else f"made by {job.job_type}"
        return Loss(artifact.artifact_id, f"{where}: only a backup has them", _BRING)
    (now,) = preview(tx, scope, [job.request])
    if now is None or now.job_id == job.job_id:
        return Loss(artifact.artifact_id, "they can be fetched again", PLAN, job)
    if now.status in {Status.PENDING, Status.PROCESSING}:
        return Loss(artifact.artifact_id, f"job {now.job_id} fetches them again", _RUN)
    if now.status in {Status.FAILED, Status.CANCELED}:
        return Loss(
            artifact.artifact_id, f"job {now.job_id} was to fetch them and {now.status.value}: `longshore retry`"
        )
    results = results_named(tx, scope, [now.job_id]).get(now.job_id, [])
    if any(one.availability == "available" for one in results):
        return Loss(artifact.artifact_id, f"job {now.job_id} holds what the source gives today")
    return Loss(artifact.artifact_id, "they can be fetched again", PLAN, job)
