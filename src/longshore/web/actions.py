"""What the dashboard's forms do. With the script they answer JSON, without it they lead back to the page."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.ledger import hosts, lookup, tokens
from longshore.lists import BadLine, read_list
from longshore.web.access import Admin, Writer, form
from longshore.web.api.bulk import act_on_all
from longshore.web.api.jobs import plan
from longshore.web.models import BulkIn, HostIn, JobFilterIn
from longshore.web.pages import JOB_FIELDS
from longshore.web.problems import Problem
from longshore.web.service import Service
from longshore.web.session import inside
from longshore.web.views import View

routes = APIRouter(include_in_schema=False)


def told(request: Request, text: str, back: str, goto: str | None = None) -> Response:
    """Say what was done, in the form that was asked for."""
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse({"told": text, **({"goto": goto} if goto else {})})
    return RedirectResponse(inside(goto or back), 303)


def many(n: int, one: str) -> str:
    """Write a number with its noun."""
    return f"{n:,} {one}{'' if n == 1 else 's'}"


@routes.post("/add")
async def add(request: Request, caller: Writer) -> Response:
    """Plan what was pasted or dropped."""
    service: Service = request.app.state.service
    text = form(request.scope).get("lines", "")
    requests, bad = _read(text)
    if not requests:
        raise Problem(422, "bad_input", bad or "there is nothing to add")
    new = sum(bool(one["created"]) for one in await plan(service, caller.scope, requests, "never", None, ""))
    parts = [f"{many(new, 'job')} added"]
    if len(requests) > new:
        parts.append(f"{len(requests) - new:,} known already")
    if bad:
        parts.append(f"not added: {bad}")
    return told(request, "; ".join(parts), "/")


def _read(text: str) -> tuple[list[JobRequest], str]:
    requests: list[JobRequest] = []
    refused: list[BadLine] = []
    for item in read_list(io.BytesIO(text.encode("utf-8", "replace"))):
        if isinstance(item, BadLine):
            refused.append(item)
        else:
            requests.append(item)
    said = "" if not refused else f"line {refused[0].line}: {refused[0].message}"
    return requests, said + (f" (and {len(refused) - 1:,} more)" if len(refused) > 1 else "")


@routes.post("/jobs/act")
async def act_on_chosen(request: Request, caller: Writer) -> Response:
    """Retry or cancel the chosen jobs."""
    fields = parse_qs(request.state.body.decode("utf-8", "replace"), max_num_fields=2000)
    chosen = fields.get("job_id", [])
    if not chosen:
        raise Problem(422, "bad_input", "choose jobs first")
    act = _act(form(request.scope))
    done = await act_on_all(request.app.state.service, caller.scope, _valid(BulkIn, job_ids=chosen), act)
    return told(request, _said(act, done["count"]), "/jobs")


@routes.post("/jobs/act-all")
async def act_on_matching(request: Request, caller: Writer) -> Response:
    """Retry or cancel all jobs that match the page's filter."""
    fields = form(request.scope)
    act = _act(fields)
    wanted = {name: request.query_params.get(name) or None for name in JOB_FIELDS}
    body = _valid(BulkIn, filter=_valid(JobFilterIn, **wanted), expected_count=fields.get("expected_count"))
    done = await act_on_all(request.app.state.service, caller.scope, body, act)
    return told(request, _said(act, done["count"]), "/jobs")


@routes.post("/failures/retry")
async def retry_group(request: Request, caller: Writer) -> Response:
    """Retry one group of failures."""
    fields = form(request.scope)
    group = {"reason": fields.get("reason") or None, "host": fields.get("host", "")}
    wanted = _valid(JobFilterIn, status="failed", current=True, **group)
    body = _valid(BulkIn, filter=wanted, expected_count=fields.get("expected_count"))
    done = await act_on_all(request.app.state.service, caller.scope, body, "retry")
    return told(request, _said("retry", done["count"]), "/failures")


@routes.post("/jobs/{job_id}/retry")
async def retry_one(request: Request, job_id: str, caller: Writer) -> Response:
    """Retry one job and go to the new one."""
    await request.app.state.service.ledger.read_soon(lookup.job, caller.scope, job_id)
    done = await act_on_all(request.app.state.service, caller.scope, _valid(BulkIn, job_ids=[job_id]), "retry")
    goto = f"/jobs/{done['job_ids'][0]}" if done["job_ids"] else None
    return told(request, _said("retry", done["count"]), f"/jobs/{job_id}", goto)


@routes.post("/jobs/{job_id}/cancel")
async def cancel_one(request: Request, job_id: str, caller: Writer) -> Response:
    """Cancel one job."""
    await request.app.state.service.ledger.read_soon(lookup.job, caller.scope, job_id)
    done = await act_on_all(request.app.state.service, caller.scope, _valid(BulkIn, job_ids=[job_id]), "cancel")
    return told(request, _said("cancel", done["count"]), f"/jobs/{job_id}")


@routes.post("/hosts/set")
async def set_host(request: Request, caller: Admin) -> Response:
    """Change a host's limits, or pause it."""
    fields = form(request.scope)
    host = fields.get("host", "")
    if not host or len(host) > 300:
        raise Problem(422, "bad_input", "name a host")
    names = [name for name in ("concurrency", "rate_per_s", "paused") if name in fields]
    body = _valid(HostIn, **{name: fields[name].strip() or None for name in names})
    changes = {name: getattr(body, name) for name in names}
    await request.app.state.service.ledger.soon(hosts.set_host, host, changes)
    request.app.state.service.wake()
    return told(request, f"{host}: saved", "/hosts")


@routes.post("/system/tokens/{token_id}/revoke")
async def revoke(request: Request, token_id: str, caller: Admin) -> Response:
    """Close a token."""
    await request.app.state.service.ledger.soon(tokens.revoke_token, token_id)
    return told(request, "the token is revoked", "/system")


def _act(fields: View) -> Any:
    act = fields.get("act")
    if act not in ("retry", "cancel"):
        raise Problem(422, "bad_input", "retry or cancel?")
    return act


def _said(act: str, count: int) -> str:
    return f"{many(count, 'new job')} planned" if act == "retry" else f"{many(count, 'job')} canceled or asked to stop"


def _valid(model: Callable[..., Any], **fields: Any) -> Any:
    try:
        return model(**fields)
    except ValueError as error:
        raise BadInput(f"not acceptable: {', '.join(sorted(fields))}") from error
