"""The dashboard's read-only pages. One function per page returns plain values, for HTML and `.json`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import quote, unquote

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.datastructures import Headers, QueryParams
from starlette.types import Scope as AsgiScope

from longshore import __version__
from longshore.domain.kinds import DOWNLOAD, TORRENT, UPLOAD, Status
from longshore.domain.reasons import REASONS
from longshore.errors import NotFound
from longshore.ledger.operations import make_claimable, tokens
from longshore.ledger.queries import all_tenants, history, listing, lookup
from longshore.ledger.queries.search import suggestions
from longshore.ledger.queries.why_waiting import why_waiting
from longshore.ledger.transaction import Tx
from longshore.web import health, queries
from longshore.web.bulk_retry_cancel import MOST
from longshore.web.dashboard import remedies, timeline
from longshore.web.dashboard.compression import compressed
from longshore.web.dashboard.overview import overview
from longshore.web.dashboard.render import environment, query, stamp
from longshore.web.dashboard.waiting import pending_ids, shown_wait
from longshore.web.dashboard.waterfall import waterfall
from longshore.web.problems import MEDIA_TYPE, Problem, problem_body
from longshore.web.security.auth import Admin, Caller, Reader, inside, reads_pages, split_url
from longshore.web.serializers import View, artifact_view, as_cli, as_curl, job_view, remedy_of, token_view
from longshore.web.service import Service

routes = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
templates: Final = environment()

ROWS: Final = 50
WORD: Final = "longshore_word"  # cookie: message for the next page
WORD_MOST: Final = 500
EVERY_S: Final = {"overview": 1, "jobs": 1, "failures": 3, "system": 10}  # a page refreshes at most so often
COMMON_HTTP: Final = tuple(f"http_{code}" for code in (401, 403, 404, 410, 429, 500, 502, 503, 504))
JOB_FIELDS: Final = ("status", "url", "host", "reason", "job_type", "current")


@dataclass(frozen=True, slots=True)
class Page:
    """One entry of the menu."""

    page: str
    title: str
    href: str
    needs: str = "read"


MENU: Final = (
    Page("overview", "Overview", "/"),
    Page("jobs", "Jobs", "/jobs"),
    Page("failures", "Failures", "/failures"),
    Page("hosts", "Hosts", "/hosts", "admin"),
    Page("artifacts", "Artifacts", "/artifacts"),
    Page("torrents", "Torrents", "/torrents"),
    Page("system", "System", "/system", "admin"),
)

Reads = Callable[[Service, Caller, Request], Awaitable[View]]


def context(caller: Caller | None, page: str, title: str) -> dict[str, Any]:
    """Return the values that every page needs; the caller may be unknown on error pages."""
    common: dict[str, Any] = {"page": page, "title": title, "told": None, "cli": None, "json_url": "", "job_id": None}
    common |= {"layout": "base.html", "every": EVERY_S.get(page, 2)}
    if caller is None:
        return common | {"nav": [], "csrf": None, "may_write": False, "may_admin": False, "caller": None}
    scope = caller.scope
    return common | {
        "nav": [entry for entry in MENU if caller.may(entry.needs)],
        "csrf": caller.csrf,
        "may_write": caller.may("write") and caller.csrf is not None,
        "may_admin": caller.may("admin") and caller.csrf is not None,
        "caller": {"tenant_id": scope.tenant_id, "project_id": scope.project_id, "scopes": sorted(caller.token.scopes)},
    }


def leave_word(answer: Response, tone: str, text: str) -> None:
    """Store a message in a cookie; after a form without JavaScript the next page shows it once."""
    answer.set_cookie(WORD, quote(f"{tone} {text[:WORD_MOST]}"), max_age=60, httponly=True, samesite="strict", path="/")


def left_word(request: Request) -> dict[str, str] | None:
    """Read the message that a form stored."""
    tone, _, text = unquote(request.cookies.get(WORD, "")).partition(" ")
    return {"tone": tone, "text": text[:WORD_MOST]} if tone in ("good", "warn") and text else None


def twin(path: str, params: QueryParams) -> str:
    """Return the JSON variant of a page."""
    return ("/overview" if path == "/" else path) + ".json" + query(dict(params))


async def show(request: Request, caller: Caller, page: str, title: str, read: Reads, cli: str = "") -> Response:
    """Return the page or, for `.json`, its values."""
    as_json = request.url.path.endswith(".json")
    try:
        view = await read(request.app.state.service, caller, request)
    except NotFound as error:
        if as_json:
            raise
        return page_problem(caller, problem_body(404, "not_found", str(error)), "/", "/sign-in")
    if as_json:
        return JSONResponse(view)
    values = context(caller, page, title) | {"view": view, "cli": cli}
    values["json_url"] = twin(request.url.path, request.query_params)
    values["told"] = left_word(request)
    values["job_id"] = request.path_params.get("job_id")
    if is_fragment(request):
        values["layout"] = "fragment.html"
    name = {"job": "job.html", "artifact": "artifact.html"}.get(title.lower(), f"{page}.html")
    answer = compressed(request, HTMLResponse(templates.get_template(name).render(values)))
    answer.headers.add_vary_header("X-Fragment")
    if WORD in request.cookies:
        answer.delete_cookie(WORD, path="/", httponly=True, samesite="strict")
    return answer


def is_fragment(request: Request) -> bool:
    """Return whether the script refreshes a page that is open: what was asked for once is not done again."""
    return "x-fragment" in request.headers


def page_problem(caller: Caller | None, body: dict[str, Any], back: str, again: str) -> HTMLResponse:
    """Show a problem as a page with a link back."""
    values = context(caller, "", body["title"]) | {"problem": body, "back": back, "again": again}
    values["may_read"] = caller is not None and caller.may("read")
    return HTMLResponse(templates.get_template("problem.html").render(values), body["status"])


def for_people(scope: AsgiScope, answer: Response) -> Response:
    """Turn a problem document into a page if a browser sent the request."""
    headers = Headers(scope=scope)
    if answer.media_type != MEDIA_TYPE or not reads_pages(scope, headers):
        return answer
    sender, asked = split_url(headers.get("referer", "")), scope["method"] in ("GET", "HEAD")
    here = sender.netloc == headers.get("host", "") and not asked
    back = inside(sender.path + (f"?{sender.query}" if sender.query else "")) if here else "/"
    body = json.loads(bytes(answer.body))
    page = page_problem(
        scope["state"].get("caller"), body, back, "/sign-in?next=" + quote(scope["path"] if asked else back)
    )
    page.headers.update({name: value for name, value in answer.headers.items() if not name.startswith("content-")})
    return page


# ---- values of the pages


def job_filter(params: QueryParams) -> tuple[dict[str, str | None], listing.JobFilter]:
    """Parse the filter of the jobs page; an unknown status matches nothing rather than everything."""
    fields = {name: params.get(name) or None for name in JOB_FIELDS}
    status = fields["status"]
    if status is not None and status not in set(Status):
        raise Problem(422, "bad_input", "status is one of " + ", ".join(Status))
    url = fields["url"]  # the same field takes a work id if it is not a URL
    wanted = listing.JobFilter(
        status=Status(status) if status else None,
        url=url if url and "://" in url else None,
        work_id=url if url and "://" not in url else None,
        host=fields["host"],
        reason=fields["reason"],
        job_type=fields["job_type"],
        current=fields["current"] == "1",
    )
    return fields, wanted


async def jobs(service: Service, caller: Caller, request: Request) -> View:
    """List jobs with their counts."""
    fields, wanted = job_filter(request.query_params)
    after = request.query_params.get("after") or None
    counting = request.query_params.get("count") == "1" and not is_fragment(request)
    edge = None if after is None else str(service.cursors.read(caller.scope, after))
    view: View = await service.search(caller.token, wanted, _jobs, caller, wanted, edge, counting=counting)
    view["next"] = service.next_cursor(caller.scope, view["next"])
    waiting = await service.ledger.read_async(why_waiting, caller.scope, service.hosts, pending_ids(view["jobs"]))
    view["jobs"] = [
        service.with_progress(job) | {"waits": shown_wait(waiting.get(job["job_id"]))} for job in view["jobs"]
    ]
    return {"filter": fields, "counted": request.query_params.get("count") == "1", **view}


def _jobs(tx: Tx, caller: Caller, wanted: listing.JobFilter, after: str | None, *, counting: bool) -> View:
    counted = lookup.counts(tx, caller.scope)
    page = listing.jobs(tx, caller.scope, wanted, after=after, limit=ROWS)
    # Counters have the number of each status; finer filters are counted only on request, because that reads the rows.
    matching = None
    if counting or not wanted.reads_many():
        matching = listing.count_matching(tx, caller.scope, wanted, at_most=MOST + 1)
    reasons, types = suggestions(tx, caller.scope)
    return {
        "reasons": sorted(REASONS.keys() | {*COMMON_HTTP, *reasons}),
        "types": sorted({DOWNLOAD, TORRENT, UPLOAD, *types}),
        "counts": {status.value: counted.get(status, 0) for status in Status},
        "matching": matching,
        "matching_more": matching is not None and matching > MOST,
        "jobs": [job_view(job) for job in page.items],
        "next": page.next,
    }


async def job(service: Service, caller: Caller, request: Request) -> View:
    """Return one job's history."""
    seal = partial(service.cursors.seal, caller.scope)
    view: View = await service.ledger.read_async(_job, caller, request.path_params["job_id"], seal)
    wanted = pending_ids([view["job"]])
    waiting = await service.ledger.read_async(why_waiting, caller.scope, service.hosts, wanted, with_place=True)
    waits = shown_wait(waiting.get(view["job"]["job_id"]))
    return view | {"job": service.with_progress(view["job"]), "waits": waits}


def _job(tx: Tx, caller: Caller, job_id: str, seal: queries.Seal) -> View:
    record = lookup.job(tx, caller.scope, job_id)
    detail = queries.job_detail(tx, caller.scope, job_id, seal)
    return {
        **detail,
        "timeline": timeline.steps(detail),
        "waterfall": waterfall(detail, stamp(tx.now) or ""),
        "remedy": remedy_of(record.reason)[1],
        "retried_as": history.retried_as(tx, caller.scope, job_id),
        "advice": remedies.advised(record.reason),
        "curl": as_curl(record),
        "as_cli": as_cli(record),
    }


async def host_list(service: Service, caller: Caller, request: Request) -> View:
    """List hosts."""
    view: View = await service.ledger.read_async(
        queries.host_page, service.hosts, request.query_params.get("after"), ROWS
    )
    return view


async def artifacts(service: Service, caller: Caller, request: Request) -> View:
    """List artifacts, or those of one hash, URL or work."""
    q, kind = request.query_params.get("q", "").strip(), request.query_params.get("artifact_type") or None
    is_hash = len(q) == 64 and all(char in "0123456789abcdefABCDEF" for char in q)
    wanted = listing.ArtifactFilter(
        sha256=q.lower() if is_hash else None,
        url=q if "://" in q else None,
        work_id=q if q and not is_hash and "://" not in q else None,
        artifact_type=kind,
    )
    after = request.query_params.get("after") or None
    page = await service.search(caller.token, wanted, listing.artifacts, caller.scope, wanted, after=after, limit=ROWS)
    found = [artifact_view(one) for one in page.items]
    return {"filter": {"q": q or None, "artifact_type": kind}, "artifacts": found, "next": page.next}


async def artifact(service: Service, caller: Caller, request: Request) -> View:
    """Return one artifact's provenance."""
    view: View = await service.ledger.read_async(
        queries.artifact_story, caller.scope, request.path_params["artifact_id"]
    )
    return view


async def torrents(service: Service, caller: Caller, request: Request) -> View:
    """List torrent jobs."""
    wanted = listing.JobFilter(job_type=TORRENT)
    after = request.query_params.get("after") or None
    page = await service.job_page(caller.token, wanted, after, ROWS)
    return {"jobs": [job_view(one) for one in page.items], "next": page.next}


async def system(service: Service, caller: Caller, request: Request) -> View:
    """Return the state of the system."""
    view: View = await service.ledger.read_async(_system, caller)
    due = await service.ledger.read_async(make_claimable.next_due)
    asked = request.query_params.get("doctor") == "1" and not is_fragment(request)
    return view | {
        "doctor": await health.doctor(service) if asked else None,
        "overdue": due is not None and due < caller.now,
        "works_here": service.depot is not None and service.settings.workers,
        "version": __version__,
        "schema_version": await health.schema(service),
        "dialect": service.ledger.dialect,
        "store": service.store.backend,
        "checks": await health.checks(service),
        "writer_queue": service.ledger.queue_length(),
        "next_due": stamp(due),
        "streams": service.streams.total(),
    }


def _system(tx: Tx, caller: Caller) -> View:
    return {
        "workers": [
            {"owner": worker.owner, "leases": worker.leases, "until": stamp(worker.until)}
            for worker in all_tenants.leases(tx)
        ],
        "tokens": [token_view(token) | {"alive": token.alive(tx.now)} for token in tokens.list_tokens(tx, 100)],
        "audit": queries.audit_page(tx, caller.scope, None, 30)["entries"],
    }


# ---- the routes: each page and its JSON variant


@routes.get("/")
@routes.get("/overview.json")
async def overview_page(request: Request, caller: Reader) -> Response:
    """Show the overview."""
    return await show(request, caller, "overview", "Overview", overview, "longshore status")


@routes.get("/jobs")
@routes.get("/jobs.json")
async def jobs_page(request: Request, caller: Reader) -> Response:
    """Show jobs."""
    return await show(request, caller, "jobs", "Jobs", jobs, jobs_cli(request.query_params))


def jobs_cli(params: QueryParams) -> str:
    """Return the same filter as a command line."""
    import shlex

    words = ["longshore", "jobs"]
    for name in JOB_FIELDS:
        if (value := params.get(name)) and name != "current":
            words += [f"--{'type' if name == 'job_type' else name}", shlex.quote(value)]
    return " ".join(words)


@routes.get("/jobs/{job_id}")
@routes.get("/jobs/{job_id}.json")
async def job_page(request: Request, job_id: Annotated[str, ...], caller: Reader) -> Response:
    """Show one job."""
    return await show(request, caller, "jobs", "Job", job, f"longshore show {job_id[:60]}")


@routes.get("/hosts")
@routes.get("/hosts.json")
async def hosts_page(request: Request, caller: Admin) -> Response:
    """Show hosts."""
    return await show(request, caller, "hosts", "Hosts", host_list)


@routes.get("/artifacts")
@routes.get("/artifacts.json")
async def artifacts_page(request: Request, caller: Reader) -> Response:
    """Show artifacts."""
    return await show(request, caller, "artifacts", "Artifacts", artifacts, "longshore export")


@routes.get("/artifacts/{artifact_id}")
@routes.get("/artifacts/{artifact_id}.json")
async def artifact_page(request: Request, artifact_id: Annotated[str, ...], caller: Reader) -> Response:
    """Show one artifact."""
    return await show(request, caller, "artifacts", "Artifact", artifact)


@routes.get("/torrents")
@routes.get("/torrents.json")
async def torrents_page(request: Request, caller: Reader) -> Response:
    """Show torrents."""
    return await show(request, caller, "torrents", "Torrents", torrents, "longshore torrent list")


@routes.get("/system")
@routes.get("/system.json")
async def system_page(request: Request, caller: Admin) -> Response:
    """Show the system page."""
    return await show(request, caller, "system", "System", system, "longshore doctor")
