"""Form handlers of the dashboard. With JavaScript they return JSON; without it, pages and redirects."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse

from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.ledger.operations import hosts, tokens
from longshore.ledger.queries import lookup
from longshore.lists import BadLine, read_list
from longshore.web.api.jobs import plan
from longshore.web.api.models import BulkIn, HostIn, JobFilterIn
from longshore.web.bulk_retry_cancel import MOST, act_on_all, fitting_ids
from longshore.web.dashboard.pages import JOB_FIELDS, context, job_filter, leave_word, templates
from longshore.web.dashboard.render import many, query
from longshore.web.problems import Problem
from longshore.web.security.auth import Admin, Caller, Writer, form, inside
from longshore.web.security.auth import act as audited
from longshore.web.serializers import View
from longshore.web.service import Service

routes = APIRouter(include_in_schema=False)

ACTS: Final = {"retry": "Retry", "cancel": "Cancel"}


def by_script(request: Request) -> bool:
    """Return whether the dashboard's script sent the form; otherwise the response is a page."""
    return "application/json" in request.headers.get("accept", "")


def told(request: Request, text: str, back: str, goto: str | None = None, *, tone: str = "good") -> Response:
    """Return the result as JSON, or redirect to a page that shows it."""
    if by_script(request):
        return JSONResponse({"told": text, "tone": tone, **({"goto": goto} if goto else {})})
    answer = RedirectResponse(inside(goto or back), 303)
    leave_word(answer, tone, text)
    return answer


def ask_first(request: Request, caller: Caller, question: str, yes: str, back: str, **fields: Any) -> Response | None:
    """Without JavaScript: return a confirmation page whose button sends the same form again."""
    given = form(request.scope)
    if by_script(request) or given.get("confirmed") == "1":
        return None
    caller.noted.update(only_asked=True)
    kept = {
        **given,
        **{name: str(value) for name, value in fields.items()},
        "csrf": caller.csrf or "",
        "confirmed": "1",
    }
    values = context(caller, "", yes) | {"question": question, "yes": yes, "back": inside(back), "fields": kept}
    values["action"] = request.url.path + query(dict(request.query_params))
    return HTMLResponse(templates.get_template("confirm.html").render(values))


@routes.post("/add")
async def add(request: Request, caller: Writer) -> Response:
    """Plan the pasted or dropped lines."""
    service: Service = request.app.state.service
    text = form(request.scope).get("lines", "")
    requests, bad = await asyncio.to_thread(_read, text)  # a large list takes seconds
    if not requests:
        raise Problem(422, "bad_input", bad or "there is nothing to add")
    planned = await plan(service, caller, requests, "never", None, "", note=lambda made: _added(made, bool(bad)))
    new = sum(bool(one["created"]) for one in planned)
    parts = [f"{many(new, 'job')} added"]
    if len(requests) > new:
        parts.append(f"{len(requests) - new:,} known already")
    if bad:
        parts.append(f"not added: {bad}")
    return told(request, "; ".join(parts), "/", tone="warn" if bad else "good")


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
    """Retry or cancel the selected jobs."""
    fields = parse_qs(request.state.body.decode("utf-8", "replace"), max_num_fields=2000)
    chosen = fields.get("job_id", [])
    if not chosen:
        raise Problem(422, "bad_input", "choose jobs first")
    act = _act(form(request.scope))
    done = await act_on_all(request.app.state.service, caller, valid(BulkIn, job_ids=chosen), act)
    left = len(set(chosen)) - done["count"]
    said = outcome_text(act, done["count"]) + (f"; {many(left, 'chosen job')} left as is" if left > 0 else "")
    return told(request, said, _jobs_url(request), tone="good" if done["count"] else "warn")


@routes.post("/jobs/act-all")
async def act_on_matching(request: Request, caller: Writer) -> Response:
    """Retry or cancel all jobs that match the page's filter, after a confirmation with their number."""
    service: Service = request.app.state.service
    fields = form(request.scope)
    act = _act(fields)
    given, wanted = job_filter(request.query_params)
    back = _jobs_url(request)
    if fields.get("confirmed") == "1":
        named = {
            name: getattr(wanted, name)
            for name in ("status", "url", "work_id", "host", "reason", "job_type", "current")
        }
        body = valid(BulkIn, filter=valid(JobFilterIn, **named), expected_count=fields.get("expected_count"))
        done = await act_on_all(service, caller, body, act, only_fitting=True)
        return told(request, outcome_text(act, done["count"]), back)
    count = len(await service.costly.run(caller.token.root_id, fitting_ids, caller.scope, wanted, act))
    caller.noted.update(only_asked=True)  # a confirmation page changes nothing
    if count == 0 or count > MOST:
        said = f"nothing to {act} among these" if not count else f"more than {MOST:,} jobs match; narrow the filter"
        return told(request, said, back, tone="warn")
    which = ", ".join(f"{name} {value}" for name, value in given.items() if value)
    question = f"{ACTS[act]} {many(count, 'job')} ({which or 'all that there are'})?"
    asked = ask_first(request, caller, question, f"{ACTS[act]} {many(count, 'job')}", back, expected_count=count)
    return asked or JSONResponse({"ask": question, "expected_count": count})


@routes.post("/jobs/{job_id}/retry")
async def retry_one(request: Request, job_id: str, caller: Writer) -> Response:
    """Retry one job and go to the new one."""
    await request.app.state.service.ledger.read_async(lookup.job, caller.scope, job_id)
    done = await act_on_all(request.app.state.service, caller, valid(BulkIn, job_ids=[job_id]), "retry")
    goto = f"/jobs/{done['job_ids'][0]}" if done["job_ids"] else None
    return told(request, outcome_text("retry", done["count"]), f"/jobs/{job_id}", goto)


@routes.post("/jobs/{job_id}/cancel")
async def cancel_one(request: Request, job_id: str, caller: Writer) -> Response:
    """Cancel one job."""
    await request.app.state.service.ledger.read_async(lookup.job, caller.scope, job_id)
    if asked := ask_first(request, caller, f"Cancel the job {job_id}?", "Cancel it", f"/jobs/{job_id}"):
        return asked
    done = await act_on_all(request.app.state.service, caller, valid(BulkIn, job_ids=[job_id]), "cancel")
    return told(request, outcome_text("cancel", done["count"]), f"/jobs/{job_id}")


@routes.post("/hosts/set")
async def set_host(request: Request, caller: Admin) -> Response:
    """Change a host's limits, or pause it."""
    fields = form(request.scope)
    host = fields.get("host", "")
    if not host or len(host) > 300:
        raise Problem(422, "bad_input", "name a host")
    names = [name for name in ("concurrency", "rate_per_s", "paused") if name in fields]
    body = valid(HostIn, **{name: fields[name].strip() or None for name in names})
    changes: View = {name: getattr(body, name) for name in names}
    noted: View = {"act": "set host", "host": host, **changes}
    await audited(request.app.state.service, caller, hosts.set_host, host, changes, note=lambda _: noted)
    request.app.state.service.wake()
    return told(request, f"{host}: saved", "/hosts")


@routes.post("/system/tokens/{token_id}/revoke")
async def revoke(request: Request, token_id: str, caller: Admin) -> Response:
    """Revoke a token."""
    if asked := ask_first(request, caller, f"Revoke the token {token_id}?", "Revoke it", "/system"):
        return asked
    noted = partial(tokens.noted, "revoke token")
    await audited(request.app.state.service, caller, tokens.revoke_token, token_id, note=noted)
    return told(request, "the token is revoked", "/system")


def _added(planned: list[View], refused: bool) -> View:
    new = sum(bool(one["created"]) for one in planned)
    return {"act": "add", "count": new, "known": len(planned) - new, "refused": refused}


def _jobs_url(request: Request) -> str:
    return "/jobs" + query({name: request.query_params.get(name) for name in JOB_FIELDS})


def number(text: str | None) -> int:
    """Return a number of a form; 0 if it is none."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else 0


def _act(fields: View) -> Any:
    act = fields.get("act")
    if act not in ("retry", "cancel"):
        raise Problem(422, "bad_input", "retry or cancel?")
    return act


def outcome_text(act: str, count: int) -> str:
    """Return what an action did."""
    return f"{many(count, 'new job')} planned" if act == "retry" else f"{many(count, 'job')} canceled or asked to stop"


def valid(model: Callable[..., Any], **fields: Any) -> Any:
    """Return the fields of a form as a model of the API, or raise BadInput."""
    try:
        return model(**fields)
    except ValueError as error:
        raise BadInput(f"not acceptable: {', '.join(sorted(fields))}") from error
