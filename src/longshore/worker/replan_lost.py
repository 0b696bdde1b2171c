"""Replace completed jobs whose bytes are lost: planning the same request again must not return such a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from longshore.domain.kinds import Status
from longshore.domain.model import Artifact, JobRequest, Planned, Scope
from longshore.ledger.queries.due_work import results_named

if TYPE_CHECKING:
    from longshore.ledger import Ledger

Sizes = Callable[[Scope, Sequence[str]], Sequence[int | None]]  # of the blobs behind pointers, as `Store.sizes` tells
DONE = frozenset({Status.COMPLETED, Status.SKIPPED})


def results_and_gone(
    ledger: Ledger, sizes: Sizes | None, scope: Scope, job_ids: Sequence[str]
) -> tuple[dict[str, list[Artifact]], set[str]]:
    """Return the results of jobs, and which of these artifacts have no bytes; what is found so is marked missing.

    Without `sizes` only the marks count: asking a remote store for each of a million would take hours.
    """
    results = ledger.read(results_named, scope, job_ids)
    artifacts = list({one.artifact_id: one for found in results.values() for one in found}.values())
    gone = {one.artifact_id for one in artifacts if one.availability != "available"}
    if sizes is not None:
        have = sizes(scope, [one.pointer for one in artifacts])
        new = {one.artifact_id for one, size in zip(artifacts, have, strict=True) if size != one.size_bytes} - gone
        if new:
            ledger.mark_missing(scope, sorted(new))
        gone |= new
    return results, gone


def plan_lost_again(
    ledger: Ledger, sizes: Sizes | None, scope: Scope, requests: Sequence[JobRequest], planned: Sequence[Planned]
) -> list[Planned]:
    """Return what was planned, with a linked new job in the place of each whose bytes are lost.

    A job without any result is left alone: it was purged on purpose.
    """
    answer = list(planned)
    done = list({one.job_id for one in planned if one.status in DONE})
    if not done:
        return answer
    results, gone = results_and_gone(ledger, sizes, scope, done)
    lost = {job_id for job_id, found in results.items() if all(one.artifact_id in gone for one in found)}
    places = [place for place, one in enumerate(planned) if one.job_id in lost]
    if places:
        anew = ledger.plan(scope, [requests[place] for place in places], again="always")
        for place, one in zip(places, anew, strict=True):
            answer[place] = one
    return answer
