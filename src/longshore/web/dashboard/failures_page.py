"""The failures page: groups by reason and host, and what can be done about each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse

from longshore.domain.kinds import Status
from longshore.domain.model import SECOND, Micros, Scope
from longshore.domain.policy.redaction import safe_url, says_all
from longshore.ledger.named_rows import JobRow
from longshore.ledger.operations import hosts
from longshore.ledger.queries import history, listing
from longshore.ledger.transaction import Tx
from longshore.web import queries
from longshore.web.api.models import BulkIn, JobFilterIn
from longshore.web.bulk_retry_cancel import MOST, act_on_all
from longshore.web.dashboard import remedies
from longshore.web.dashboard.actions import ask_first, number, outcome_text, told, valid
from longshore.web.dashboard.pages import show
from longshore.web.dashboard.render import many, query
from longshore.web.problems import Problem
from longshore.web.security.auth import Admin, Caller, Reader, Writer, form
from longshore.web.security.auth import act as audited
from longshore.web.serializers import View
from longshore.web.service import Service

routes = APIRouter(include_in_schema=False)

GROUPS: Final = 25
REST_S: Final = 3600.0


async def failures(service: Service, caller: Caller, request: Request) -> View:
    """Return one page of the groups, the largest first."""
    page = max(1, number(request.query_params.get("page"))) if request.query_params.get("page") else 1
    skip = min(page - 1, 10_000) * GROUPS
    groups = await service.costly.run(
        caller.token.root_id, queries.failure_groups, caller.scope, skip=skip, limit=GROUPS + 1
    )
    for group in groups:
        named = {"status": "failed", "reason": group["reason"], "host": group["host"], "current": "1"}
        group["jobs_url"] = "/jobs" + query(named)
        group["advice"] = list(remedies.advised(group["reason"]))
    left = await service.ledger.read_async(history.failures_left, caller.scope)
    following = page + 1 if len(groups) > GROUPS else None
    return {"groups": groups[:GROUPS], "failed": left, "number": page, "next": following}


@routes.get("/failures", response_class=HTMLResponse)
@routes.get("/failures.json")
async def failures_page(request: Request, caller: Reader) -> Response:
    """Show failures."""
    return await show(request, caller, "failures", "Failures", failures, "longshore failures")


@routes.get("/failures/urls")
async def failed_urls(request: Request, caller: Reader) -> Response:
    """Return the URLs of one group as a list, which `longshore add` reads."""
    service: Service = request.app.state.service
    reason, host = request.query_params.get("reason") or None, request.query_params.get("host", "")
    wanted = listing.JobFilter(status=Status.FAILED, reason=reason, host=host, current=True)
    lines = await service.costly.run(caller.token.root_id, _urls, caller.scope, wanted)
    headers = {"Content-Disposition": 'attachment; filename="failed-urls.txt"'}
    return StreamingResponse(iter(lines), media_type="text/plain; charset=utf-8", headers=headers)


def _urls(tx: Tx, scope: Scope, wanted: listing.JobFilter) -> list[str]:
    return [line + "\n" for line in map(_line, _some(listing.each_job(tx, scope, wanted))) if line]


def _some(rows: Iterator[JobRow]) -> Iterator[JobRow]:
    for _, row in zip(range(MOST), rows, strict=False):
        yield row


def _line(row: JobRow) -> str:
    url = row.url or row.canonical_url or ""
    return safe_url(url) if not url or says_all(url) else f"# {row.job_id}: its URL holds a secret"


@routes.post("/failures/retry")
async def retry_group(request: Request, caller: Writer) -> Response:
    """Retry one group of failures."""
    fields, count, where = _group(request)
    if asked := ask_first(request, caller, f"Retry {count} ({where})?", f"Retry {count}", "/failures"):
        return asked
    done = await _retry(request, caller, fields)
    return told(request, outcome_text("retry", done["count"]), "/failures")


@routes.post("/failures/host")
async def remedy_at_host(request: Request, caller: Admin) -> Response:
    """Change how the group's host is asked, then retry the group unless the host is paused."""
    service: Service = request.app.state.service
    fields, count, _ = _group(request)
    host, act = fields.get("host", ""), fields.get("act", "")
    if not host or len(host) > 300 or act not in _AT_HOST:
        raise Problem(422, "bad_input", "name a host, and slow, later or pause")
    question, tell = _AT_HOST[act]
    if asked := ask_first(request, caller, question.format(host=host, count=count), "Do it", "/failures"):
        return asked
    noted: View = {"act": f"{act} host", "host": host}
    await audited(service, caller, _set_host, host, act, note=lambda _: noted)
    if act == remedies.PAUSE:
        return told(request, tell.format(host=host), "/failures")
    done = await _retry(request, caller, fields)
    return told(request, f"{tell.format(host=host)}; {outcome_text('retry', done['count'])}", "/failures")


_AT_HOST: Final = {
    remedies.SLOW: ("Ask {host} for one file at a time, and retry {count}?", "{host}: one at a time"),
    remedies.LATER: ("Let {host} rest for an hour, and retry {count} then?", "{host} rests for an hour"),
    remedies.PAUSE: ("Pause {host}? Nothing is asked of it until it is resumed.", "{host} is paused"),
}


def _set_host(tx: Tx, host: str, act: str) -> None:
    later: Micros = tx.now + int(REST_S * SECOND)
    change = {remedies.SLOW: {"concurrency": 1}, remedies.LATER: {"cooldown_until": later}}.get(act, {"paused": True})
    hosts.set_host(tx, host, change)


def _group(request: Request) -> tuple[dict[str, str], str, str]:
    fields = form(request.scope)
    where = ", ".join(word for word in (fields.get("reason"), fields.get("host")) if word)
    return fields, many(number(fields.get("expected_count")), "failed job"), where


async def _retry(request: Request, caller: Caller, fields: dict[str, str]) -> View:
    group = {"reason": fields.get("reason") or None, "host": fields.get("host", "")}
    wanted = valid(JobFilterIn, status="failed", current=True, **group)
    body = valid(BulkIn, filter=wanted, expected_count=fields.get("expected_count"))
    act = partial(act_on_all, request.app.state.service, caller)
    return await act(body, "retry")
