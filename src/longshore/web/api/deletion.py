"""Delete artifacts with their bytes."""

from __future__ import annotations

import asyncio
from itertools import islice

from fastapi import Request

from longshore.depot.maintenance.deletion import Chosen, Deletion, chosen_artifacts, delete, ids_and_bytes
from longshore.ledger.operations.deleting import By
from longshore.ledger.queries.listing import ArtifactFilter
from longshore.web.api.common import PathId, Serving, router
from longshore.web.api.models import DeleteIn, DeleteOut
from longshore.web.bulk_retry_cancel import MOST, NOTED, SHOWN
from longshore.web.problems import Problem
from longshore.web.security.auth import Caller, Writer
from longshore.web.serializers import View
from longshore.web.service import Service

routes = router("artifacts", 404, 409, 422)


@routes.delete("/artifacts/{artifact_id}", response_model=DeleteOut)
async def delete_artifact(artifact_id: PathId, request: Request, caller: Writer, service: Serving) -> View:
    """Delete one artifact, and its bytes if no other artifact has them."""
    found = await asyncio.to_thread(_deleted, service, caller, DeleteIn(artifact_ids=[artifact_id]), _remote(request))
    if found.unknown:
        raise Problem(404, "not_found", f"artifact {artifact_id} not found")
    if found.used:
        job_id = found.used[artifact_id]
        raise Problem(409, "in_use", f"the artifact is an input of the unfinished job {job_id}", job_id=job_id)
    return _view(found)


@routes.post("/artifacts:delete", response_model=DeleteOut)
async def delete_artifacts(body: DeleteIn, request: Request, caller: Writer, service: Serving) -> View:
    """Delete the named artifacts, or all that match, with their bytes. Tombstones remain."""
    if (body.filter is None) == (body.artifact_ids is None):
        raise Problem(422, "bad_input", "name either a filter or artifact_ids")
    if body.filter is not None and body.expected_count is None:
        raise Problem(422, "bad_input", "a filter needs expected_count: the number of matching artifacts that you saw")
    if body.filter is not None and not body.filter.model_dump(exclude_none=True):
        raise Problem(422, "bad_input", "an empty filter would delete every artifact")
    return _view(await asyncio.to_thread(_deleted, service, caller, body, _remote(request)))


def _deleted(service: Service, caller: Caller, body: DeleteIn, remote: str) -> Deletion:
    ids = body.artifact_ids or []
    if body.filter is not None:
        wanted = ArtifactFilter(**body.filter.model_dump())
        matching = chosen_artifacts(service.ledger, caller.scope, Chosen(wanted=wanted))
        ids, _ = ids_and_bytes(islice(matching, MOST + 1))
        if len(ids) > MOST:
            raise Problem(422, "too_many", f"more than {MOST} artifacts match; narrow the filter")
        if len(ids) != body.expected_count:
            raise Problem(
                409,
                "count_changed",
                f"{len(ids)} artifacts match now, not {body.expected_count}; list them again before you delete them",
                expected_count=body.expected_count,
                actual_count=len(ids),
            )
    done = delete(service.ledger, service.store, caller.scope, ids, By(caller.who, remote, body.why))
    caller.noted.update(act="delete", count=len(done.artifact_ids), artifact_ids=done.artifact_ids[:NOTED])
    return done


def _remote(request: Request) -> str:
    return request.client.host if request.client else ""


def _view(done: Deletion) -> View:
    return {
        "count": len(done.artifact_ids),
        "artifact_ids": done.artifact_ids[:SHOWN],
        "freed_bytes": done.bytes,
        "used": done.used,
        "unknown": done.unknown,
    }
