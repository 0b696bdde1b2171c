"""Jobs: submit, query, retry, cancel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from longshore import failpoints
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status, kind_of
from longshore.domain.model import JobRequest, Planned, Scope
from longshore.errors import BadInput
from longshore.ledger.operations import artifact_registry, idempotency_keys, planning
from longshore.ledger.queries import listing, lookup
from longshore.ledger.transaction import Tx
from longshore.web import queries
from longshore.web.api.common import (
    After,
    Limit,
    Metadata,
    Parameter,
    PathId,
    RequestKey,
    Serving,
    Wait,
    fingerprint,
    labels,
    request_id,
    router,
)
from longshore.web.api.models import BulkIn, BulkOut, JobAnswer, JobDetail, JobIn, JobOut, JobPage
from longshore.web.bulk_retry_cancel import act_on_all
from longshore.web.problems import Problem
from longshore.web.security.auth import Caller, Reader, Writer, act
from longshore.web.security.bodies import json_depth
from longshore.web.serializers import View, job_view
from longshore.web.service import Service
from longshore.worker.kinds.custom.job_types import JobType, known_types, own_key

failpoints.declare("web.planned")
DERIVED: Final = "\0derived"  # (compared by identity) stands for the key of a custom job until its inputs are known
routes = router("jobs", 404, 409, 413, 422)


def to_request(body: JobIn, asked_by: str) -> JobRequest:
    """Build a job request from the body."""
    kind = kind_of(body.job_type)
    if kind.of_url:
        if body.url is None:
            raise BadInput("a download needs a url")
        return download_request(
            body.url,
            work_id=body.work_id,
            artifact_id=body.artifact_id,
            mirrors=body.mirrors,
            sha256=body.sha256,
            size_bytes=body.size_bytes,
            media_type=body.media_type,
            digests=body.digests.items(),
            name=body.name,
            headers=body.headers.items(),
            priority=body.priority,
            params=body.params,
            run_id=body.run_id,
            request_id=asked_by,
        )
    if kind.own_route:
        raise BadInput(f"a job of type {body.job_type} has its own route")
    return JobRequest(
        job_type=body.job_type,
        key=DERIVED if "key" not in body.model_fields_set else body.key,
        name=body.name,
        priority=body.priority,
        params=body.params,
        inputs=tuple(body.inputs),
        run_id=body.run_id,
        request_id=asked_by,
    )


Types = Mapping[str, JobType]


async def types_of(requests: Sequence[JobRequest]) -> Types:
    """Return the known types if a request is of a custom one. The first call loads the packages that declare them."""
    custom = any(not kind_of(request.job_type).of_url for request in requests)
    return await asyncio.to_thread(known_types) if custom else {}


def unknown_type(request: JobRequest, types: Types) -> str | None:
    """Return why a request of a custom type is refused, if no installed package declares the type."""
    if kind_of(request.job_type).of_url or request.job_type in types:
        return None
    return f"unknown job type {request.job_type!r}; install the package that declares it beside `longshore serve`"


def keyed(tx: Tx, scope: Scope, request: JobRequest, types: Types) -> JobRequest:
    """Complete the request of a custom job. A key that was not given is a hash of its inputs' bytes and its parameters."""
    if kind_of(request.job_type).of_url:
        return request
    request = replace(request, max_attempts=types[request.job_type].max_attempts)
    if request.key is not DERIVED:
        return request
    hashes = [lookup.artifact(tx, scope, artifact_id).sha256 for artifact_id in request.inputs]
    key = own_key(scope, request.job_type, hashes, dict(request.params), types)
    return replace(request, key=key)


def _planned(planned: Planned) -> View:
    return {"job_id": planned.job_id, "created": planned.created}


async def plan(
    service: Service,
    caller: Caller,
    requests: list[JobRequest],
    again: Any,
    key: str | None,
    print_of: str,
    *,
    note: Callable[[list[View]], View],
) -> list[View]:
    """Plan jobs and note it in the audit log, under a request key if there is one; the response is sent after the commit."""
    types = await types_of(requests)
    for request in requests:
        if refused := unknown_type(request, types):
            raise BadInput(refused)

    scope = caller.scope

    def planned(tx: Tx) -> list[View]:
        whole = [keyed(tx, scope, request, types) for request in requests]
        return [_planned(one) for one in planning.plan(tx, scope, whole, again=again)]

    verb = (idempotency_keys.once, scope, key, print_of, planned) if key else (planned,)
    try:
        answer: list[View] = await act(service, caller, *verb, note=note)
    except idempotency_keys.KeyReused as error:
        raise Problem(422, "key_reused", str(error)) from error
    failpoints.hit("web.planned")
    service.wake()
    return answer


def _added(planned: list[View]) -> View:
    created = planned[0]["created"]
    return {"status": 202 if created else 200, "act": "add", "count": int(created), "job_id": planned[0]["job_id"]}


async def answer_lost(service: Service, scope: Scope, job_id: str) -> bool:
    """Return whether a completed job's results are lost, and mark lost results as missing."""
    results = await service.ledger.read_async(lookup.results, scope, job_id)
    if not results:
        return False
    sizes = await asyncio.to_thread(service.store.sizes, scope, [one.pointer for one in results])
    gone = [one.artifact_id for one, size in zip(results, sizes, strict=True) if size != one.size_bytes]
    if gone:
        await service.ledger.write_async(artifact_registry.mark_missing, scope, gone)
    return bool(gone)


@routes.post(
    "/jobs",
    status_code=202,
    response_model=JobAnswer,
    responses={200: {"model": JobAnswer, "description": "The job existed"}},
)
async def create_job(
    body: JobIn,
    request: Request,
    response: Response,
    caller: Writer,
    service: Serving,
    key: RequestKey = None,
    wait: Wait = 0,
) -> View:
    """Submit one job. The same work again returns the same job."""
    if wait:
        service.waits.admit(caller)  # before anything is planned
    asked = to_request(body, request_id(request))
    print_of = fingerprint("POST /jobs", body.model_dump_json())
    [planned] = await plan(service, caller, [asked], body.again, key, print_of, note=_added)
    if not planned["created"] and key is None and await answer_lost(service, caller.scope, planned["job_id"]):
        [planned] = await plan(service, caller, [asked], "always", None, print_of, note=_added)
    wait_s = min(wait, service.settings.max_wait_s)
    job = await service.job_waits.wait(caller.scope, planned["job_id"], wait_s, request.receive)
    response.status_code = 202 if planned["created"] else 200
    response.headers["Location"] = f"/api/v1/jobs/{planned['job_id']}"
    return {"created": planned["created"], "job": job_view(job)}


@routes.get("/jobs", response_model=JobPage)
async def list_jobs(
    response: Response,
    caller: Reader,
    service: Serving,
    limit: Limit,
    status: Status | None = None,
    reason: Annotated[str | None, Query(max_length=64)] = None,
    host: Annotated[str | None, Query(max_length=1024)] = None,
    url: Annotated[str | None, Query(max_length=65_536)] = None,
    work_id: Annotated[str | None, Query(max_length=65_536)] = None,
    job_type: Annotated[str | None, Query(max_length=128)] = None,
    run_id: Annotated[str | None, Query(max_length=1024)] = None,
    parameter: Parameter = None,
    metadata: Metadata = None,
    after: After = None,
) -> View:
    """List jobs, newest first."""
    named = {"status": status, "reason": reason, "host": host, "url": url, "work_id": work_id}
    looked_up = {"parameters": labels(parameter), "metadata": labels(metadata)}
    wanted = listing.JobFilter(job_type=job_type, run_id=run_id, **named, **looked_up)  # type: ignore[arg-type]
    page = await service.job_page(caller.token, wanted, after, limit)
    if page.next:
        response.headers["Link"] = f'<?after={page.next}&limit={limit}>; rel="next"'
    return {"jobs": [job_view(job) for job in page.items], "next": page.next}


@routes.post("/jobs:retry", response_model=BulkOut)
async def retry_jobs(body: BulkIn, caller: Writer, service: Serving) -> View:
    """Make new jobs, linked by `retry_of`, for the failed and canceled ones that match."""
    return await act_on_all(service, caller, body, "retry")


@routes.post("/jobs:cancel", response_model=BulkOut)
async def cancel_jobs(body: BulkIn, caller: Writer, service: Serving) -> View:
    """Cancel the waiting and running jobs that match."""
    return await act_on_all(service, caller, body, "cancel")


@routes.get("/jobs/{job_id}", response_model=JobOut)
async def show_job(job_id: PathId, request: Request, caller: Reader, service: Serving, wait: Wait = 0) -> View:
    """Show one job; with `wait`, after it has ended."""
    if wait:
        service.waits.admit(caller)
    wait_s = min(wait, service.settings.max_wait_s)
    return job_view(await service.job_waits.wait(caller.scope, job_id, wait_s, request.receive))


@routes.get("/jobs/{job_id}/timeline", response_model=JobDetail)
async def show_timeline(job_id: PathId, caller: Reader, service: Serving) -> View:
    """Show one job's history: events, claims, effects, results."""
    seal = partial(service.cursors.seal, caller.scope)
    return await service.ledger.read_async(queries.job_detail, caller.scope, job_id, seal)


@routes.post("/jobs/{job_id}/retry", response_model=BulkOut)
async def retry_job(job_id: PathId, caller: Writer, service: Serving) -> View:
    """Make a new job, linked by `retry_of`, for a failed or canceled one."""
    await service.ledger.read_async(lookup.job, caller.scope, job_id)
    return await act_on_all(service, caller, BulkIn(job_ids=[job_id]), "retry")


@routes.post("/jobs/{job_id}/cancel", response_model=BulkOut)
async def cancel_job(job_id: PathId, caller: Writer, service: Serving) -> View:
    """Cancel one job. A finished job stays as it is."""
    await service.ledger.read_async(lookup.job, caller.scope, job_id)
    return await act_on_all(service, caller, BulkIn(job_ids=[job_id]), "cancel")


def readable(line: bytes, max_depth: int) -> JobIn:
    """Parse one line of a batch: a JSON object, or a bare URL."""
    text = line.decode("utf-8", "strict").strip()
    if not text.startswith("{"):
        return JobIn(url=text)
    if json_depth(line, max_depth) > max_depth:
        raise BadInput(f"JSON may nest {max_depth} levels")
    return JobIn.model_validate(json.loads(text))
