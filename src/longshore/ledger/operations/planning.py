"""Planning: a request becomes a job, once. Asking again gives the same job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Final, Literal

from longshore.domain.identity.expectations import Result, contradiction, is_answer, login_key, own_key
from longshore.domain.identity.keys import check_params, check_text
from longshore.domain.identity.labels import labels_of
from longshore.domain.identity.logins import Logins
from longshore.domain.identity.object_versions import caller_of
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import KINDS, kind_of
from longshore.domain.model import Expect, JobRequest, Planned, Scope, Status
from longshore.errors import BadInput, NotFound
from longshore.ledger.ids import new_ids
from longshore.ledger.named_rows import KnownRow
from longshore.ledger.operations.kind_hooks import HOOKS
from longshore.ledger.operations.tenant_budgets import check_items
from longshore.ledger.rows import caller_in, check_scope, encoded, expect_of, request_text
from longshore.ledger.transaction import Row, Tx

Again = Literal["never", "failed", "always"]
_REPLANNED: Final[dict[str, frozenset[str]]] = {
    "never": frozenset(),
    "failed": frozenset({"failed", "canceled"}),
    "always": frozenset({"failed", "canceled", "completed", "skipped"}),
}
_TEXTS: Final = (
    "job_type",
    "key",
    "work_id",
    "source_ref",
    "url",
    "canonical_url",
    "run_id",
    "request_id",
    "user_id",
    "book_id",
    "media_type",
    "source",
    "retry_of",
)
_SUCCEEDED: Final = frozenset({"completed", "skipped"})
_FAILED: Final = frozenset({"failed", "canceled"})
_STATUS: Final = {status.value: status for status in Status}
_LIMIT: Final = 65_536
Known = dict[tuple[str, str | None], KnownRow]
FEW_LANES: Final = 8  # so few are simply marked again


def plan(tx: Tx, scope: Scope, requests: Sequence[JobRequest], *, again: Again = "never") -> list[Planned]:
    """Return the job of every request, in order; make the ones that do not exist."""
    check_scope(scope)
    if again not in _REPLANNED:
        raise BadInput(f"again is never, failed or always, not {again!r}")
    _check_all(requests)
    tx.enter(scope.tenant_id)
    requests, known, others = _matched(tx, scope, requests, _REPLANNED[again])
    held = _still_held(tx, scope, requests, known, _REPLANNED[again])
    found: Known = {}
    fresh: dict[tuple[str, str | None], int] = {}
    answer: list[Planned | None] = [None] * len(requests)
    twins: list[tuple[int, tuple[str, str | None]]] = []
    make: list[tuple[int, JobRequest, str | None]] = []
    for index, request in enumerate(requests):
        name = (request.job_type, request.key)
        if request.key is not None and name in fresh:
            twins.append((index, name))
            continue
        if request.key is not None and name in held and request.retry_of is None:
            answer[index] = held[name]
            continue
        row = known.get(name) if request.key is not None else None
        if row is not None and row.status not in _REPLANNED[again]:
            answer[index] = Planned(row.job_id, False, _STATUS[row.status], row.stage)
            continue
        if row is not None:
            found[name] = row
        fresh[name] = index
        make.append((index, request, row.job_id if row is not None and row.seq is not None else request.retry_of))
    if make:
        check_items(tx, scope.tenant_id, len(make))
        _supersede(tx, scope, found)
        for (index, request, _), job_id in zip(make, _insert(tx, scope, make), strict=True):
            answer[index] = Planned(job_id, True, Status.PENDING, kind_of(request.job_type).first, others.get(index))
    for index, name in twins:
        first = answer[fresh[name]]
        assert first is not None
        answer[index] = Planned(first.job_id, False, first.status, first.stage)
    return [planned for planned in answer if planned is not None]


def preview(tx: Tx, scope: Scope, requests: Sequence[JobRequest]) -> list[Planned | None]:
    """Return the job that each request has now, in order; None where planning would make one. Changes nothing."""
    check_scope(scope)
    _check_all(requests)
    tx.enter(scope.tenant_id)
    requests, known, _ = _matched(tx, scope, requests, frozenset())
    rows = [known.get((request.job_type, request.key)) if request.key is not None else None for request in requests]
    return [None if row is None else Planned(row.job_id, False, _STATUS[row.status], row.stage) for row in rows]


def plan_job_if_absent(
    tx: Tx, scope: Scope, *, work_id: str, artifact_id: str, canonical_url: str, run_id: str | None = None
) -> str:
    """Plan one download by its v1 key (work, artifact, URL) and return the job's id."""
    check_text("work_id", work_id)
    check_text("artifact_id", artifact_id)
    request = download_request(canonical_url, work_id=work_id, artifact_id=artifact_id, run_id=run_id)
    return plan(tx, scope, [request])[0].job_id


def _check_all(requests: Sequence[JobRequest]) -> None:
    """Refuse what could not be stored as it is; nothing is written before all are checked."""
    texts: list[str] = []
    for request in requests:
        if _is_plain(request):
            texts += (request.url, request.key, request.host)  # type: ignore[arg-type] # not None: _is_plain
        else:
            _check(request)
    joined = "".join(texts)
    if not joined.isascii() or "\0" in joined:  # rare: find out which one, and what is wrong with it
        for request in requests:
            _check(request)


def _is_plain(request: JobRequest) -> bool:
    """Return a download that is nothing but its URL: most of a long list. What its texts hold is still to be checked."""
    if request.__class__ is not JobRequest:
        return False
    url = request.url
    return (
        url is request.canonical_url
        and url is request.work_id
        and url is request.source_ref
        and url.__class__ is str
        and request.key.__class__ is str
        and request.host.__class__ is str
        and 0 < len(url) < _LIMIT
        and 0 < len(request.key) < _LIMIT
        and len(request.host) < _LIMIT
        and request.job_type in KINDS
        and request.priority.__class__ is int
        and request.priority == 0
        and request.max_attempts is None
        and (request.run_id is request.request_id is request.user_id is request.retry_of is None)
        and (request.book_id is request.media_type is request.source is None)
    )


def _check(request: JobRequest) -> None:
    """Refuse what could not be stored as it is; nothing is written before all are checked."""
    if request.__class__ is not JobRequest:
        raise BadInput(f"a request is a JobRequest, not {type(request).__name__}")
    texts = (request.job_type, request.key, request.work_id, request.source_ref, request.url, request.canonical_url)
    rest = (request.run_id, request.request_id, request.user_id, request.book_id, request.media_type, request.source)
    try:
        joined = "".join(filter(None, (*texts, *rest, request.host, request.retry_of)))
        plain = joined.isascii() and "\0" not in joined and len(joined) < _LIMIT
    except TypeError:
        plain = False
    if not plain or "" in texts or "" in rest or not request.job_type or len(request.job_type) > 200:
        for name in _TEXTS:
            if (value := getattr(request, name)) is not None or name == "job_type":
                check_text(name, value, limit=200 if name == "job_type" else _LIMIT)
        check_text("host", request.host, empty=True)
    if type(request.priority) is not int or not -1_000_000 <= request.priority <= 1_000_000:
        raise BadInput("priority must be a whole number from -1000000 to 1000000")
    if request.max_attempts is not None and (type(request.max_attempts) is not int or request.max_attempts < 1):
        raise BadInput("max_attempts must be a whole number from 1")
    if request.params and kind_of(request.job_type).declared:
        check_params(request.params)


def _known(tx: Tx, scope: Scope, requests: Sequence[JobRequest]) -> Known:
    """Find the current jobs (and tombstones) of all keys."""
    keys: dict[str, list[str]] = {}
    for request in requests:
        if request.key is not None:
            keys.setdefault(request.job_type, []).append(request.key)
    known: Known = {}
    where = {"tenant_id": scope.tenant_id, "project_id": scope.project_id}
    buried = bool(keys) and tx.one("plan_any_tombstone", **where) is not None
    for job_type, wanted in keys.items():
        listed = encoded(wanted)
        if buried:
            for columns in tx.all("plan_tombstones", job_type=job_type, keys=listed, **where):
                row = KnownRow(*columns)
                known[job_type, row.idempotency_key] = row
        for row in map(KnownRow._make, tx.all("plan_find", job_type=job_type, keys=listed, **where)):
            known[job_type, row.idempotency_key] = row
    return known


def _still_held(
    tx: Tx, scope: Scope, requests: Sequence[JobRequest], known: Known, replanned: frozenset[str]
) -> dict[tuple[str, str | None], Planned]:
    """Find stored results of earlier jobs whose current job failed: a failed refresh must not hide the stored content.

    A manual retry and a request to refresh get a new job instead.
    """
    if "completed" in replanned:
        return {}
    failed: dict[str, tuple[JobRequest, tuple[str, str | None]]] = {}
    for request in requests:
        row = known.get((request.job_type, request.key)) if request.key is not None else None
        if row is not None and row.status in _FAILED and row.seq is not None and request.retry_of is None:
            failed[row.job_id] = request, (request.job_type, request.key)
    if not failed:
        return {}
    where = {"tenant_id": scope.tenant_id, "project_id": scope.project_id}
    held: dict[tuple[str, str | None], Planned] = {}
    for start, job_id, status, stage, text in tx.all("plan_earlier", job_ids=encoded(sorted(failed)), **where):
        request, name = failed[start]
        if name not in held and status in _SUCCEEDED and expect_of(text) == request.expect:
            held[name] = Planned(job_id, False, _STATUS[status], stage)
    return held


def _matched(
    tx: Tx, scope: Scope, requests: Sequence[JobRequest], replanned: frozenset[str]
) -> tuple[Sequence[JobRequest], Known, dict[int, str]]:
    """Find the jobs of all keys; a request that its key's job does not answer gets a key of its own.

    `replanned`: jobs of these statuses are replaced by a new one, which the first request of the batch gets. Also return, by
    place, which expectation contradicts that of the job that has the key.
    """
    if tx.logins or any(request.mirrors for request in requests):
        logins = tx.logins.of_tenant(scope.tenant_id)
        requests = [_as_caller(logins, request) for request in requests]
    known = _known(tx, scope, requests)
    results = _results(tx, scope, requests, known)
    first: dict[tuple[str, str | None], Expect] = {}  # of the jobs that this batch makes
    others: dict[int, str] = {}
    moved: list[int] = []
    for index, request in enumerate(requests):
        if request.key is None:
            continue
        name = (request.job_type, request.key)
        row = known.get(name)
        given = request.expect if row is None else expect_of(row.request)
        fits = given is request.expect or is_answer(request.expect, given, row.status if row else "", results.get(name))
        if row is not None and row.request is not None and caller_in(row.request) != caller_of(request.headers):
            fits = False  # an older program's key did not hold the headers
        if fits and (row is None or row.status in replanned):
            given = first.setdefault(name, request.expect)
            fits = given is request.expect or given == request.expect
        if not fits:
            moved.append(index)
            if (row is None or row.status not in _SUCCEEDED) and (excluded := contradiction(request.expect, given)):
                others[index] = excluded
    if not moved:
        return requests, known, others
    own = list(requests)
    for index in moved:
        own[index] = replace(own[index], key=own_key(str(own[index].key), own[index].expect))
    return own, known | _known(tx, scope, [own[index] for index in moved]), others


def _as_caller(logins: Logins, request: JobRequest) -> JobRequest:
    """Add the logins of a download's URL and mirrors to its key, unless the request names a login already."""
    if not kind_of(request.job_type).of_url or request.key is None or request.login:
        return request
    login = logins.of_request(request.canonical_url, request.mirrors, request.headers)
    return replace(request, key=login_key(request.key, login), login=login) if login else request


def _results(
    tx: Tx, scope: Scope, requests: Sequence[JobRequest], known: Known
) -> dict[tuple[str, str | None], Result]:
    """Return the results of completed jobs that may answer a request although its expectations are others."""
    doubtful: dict[str, tuple[str, str | None]] = {}
    for request in requests:
        row = known.get((request.job_type, request.key)) if request.key is not None else None
        if row is not None and row.status in _SUCCEEDED and request.expect != expect_of(row.request):
            doubtful[row.job_id] = (request.job_type, request.key)
    if not doubtful:
        return {}
    where = {"tenant_id": scope.tenant_id, "project_id": scope.project_id}
    rows = tx.all("plan_results", job_ids=encoded(sorted(doubtful)), **where)
    return {doubtful[job_id]: Result(*rest) for job_id, *rest in rows}


def _supersede(tx: Tx, scope: Scope, found: Known) -> None:
    """Release the keys of superseded jobs and tombstones to the new jobs."""
    tx.send("plan_supersede", [(tx.now, row.seq) for row in found.values() if row.seq is not None])
    tx.send("plan_forget_tombstone", [(*scope, *name) for name, row in found.items() if row.seq is None])


def _insert(tx: Tx, scope: Scope, make: Sequence[tuple[int, JobRequest, str | None]]) -> list[str]:
    for _, request, _ in make:
        if request.job_type in HOOKS:
            HOOKS[request.job_type].check(tx, scope, request)
    lanes = open_lanes(tx, scope, [request for _, request, _ in make])
    ids = new_ids(len(make), tx.now)
    tx.send("plan_insert", _rows(tx, scope, make, ids, lanes))
    for job_type, hooks in HOOKS.items():
        jobs = [
            (job_id, old) for (_, request, old), job_id in zip(make, ids, strict=True) if request.job_type == job_type
        ]
        if jobs:
            hooks.planned(tx, scope, jobs)
    _link_inputs(tx, scope, [(job_id, request.inputs) for (_, request, _), job_id in zip(make, ids, strict=True)])
    labels = [
        (*scope, name, value, job_id)
        for (_, request, _), job_id in zip(make, ids, strict=True)
        if request.params and kind_of(request.job_type).declared
        for name, value in labels_of(request.params)
    ]
    tx.send("plan_label", labels)
    tx.send("count_add", [(*scope, Status.PENDING.value, len(make))])
    return ids


def _rows(
    tx: Tx,
    scope: Scope,
    make: Sequence[tuple[int, JobRequest, str | None]],
    ids: Sequence[str],
    lanes: dict[tuple[str, str], int],
) -> list[Row]:
    tenant, project, now = scope.tenant_id, scope.project_id, tx.now
    kinds = {name: kind_of(name) for name in {r.job_type for _, r, _ in make}}
    rows: list[Row] = []
    for (_, r, retry_of), job_id in zip(make, ids, strict=True):
        name, canonical = r.job_type, r.canonical_url
        kind = kinds[name]
        work = None if r.work_id == canonical else r.work_id
        source = None if r.source_ref == canonical else r.source_ref
        url = None if r.url == canonical else r.url
        place = (kind.first, kind.ready, lanes[r.host, name], r.priority, now)
        head = (tenant, project, job_id, name, *place, r.key, work, source)
        rest = (r.max_attempts, r.run_id, r.request_id, retry_of, r.user_id, r.book_id, r.media_type, r.source)
        rows.append((*head, url, canonical, r.host, request_text(r), *rest))
    return rows


def open_lanes(tx: Tx, scope: Scope, requests: Iterable[JobRequest]) -> dict[tuple[str, str], int]:
    """Make and mark the lanes that these requests go to."""
    tops: dict[tuple[str, str], int] = {}
    for request in requests:
        name = (request.host, request.job_type)
        top = tops.get(name)
        if top is None or request.priority > top:
            tops[name] = request.priority
    lanes = _standing_lanes(tx, scope, tops) if tx.dialect == "sqlite" and len(tops) > FEW_LANES else {}
    fresh = [name for name in sorted(tops) if name not in lanes]
    tx.send("host_known", [(host, tx.now) for host in sorted({host for host, _ in fresh}) if host])
    rows = [(*scope, host, job_type, kind_of(job_type).ready, tops[host, job_type]) for host, job_type in fresh]
    for lane_id, host, job_type in tx.many("lane_put", rows):
        lanes[host, job_type] = lane_id
    return lanes


def _standing_lanes(tx: Tx, scope: Scope, tops: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Find the lanes that are marked as these jobs need it already: a long list comes back to its hosts in every batch."""
    where = {"tenant_id": scope.tenant_id, "project_id": scope.project_id}
    found = tx.all("lanes_standing", hosts=encoded(sorted({host for host, _ in tops})), **where)
    return {
        (host, job_type): lane_id
        for lane_id, host, job_type, ready, top in found
        if ready == 1 and top >= tops.get((host, job_type), top + 1)
    }


def _link_inputs(tx: Tx, scope: Scope, jobs: Sequence[tuple[str, tuple[str, ...]]]) -> None:
    links = [(*scope, job_id, place, name) for job_id, inputs in jobs for place, name in enumerate(inputs)]
    if not links:
        return
    wanted = {name for _, inputs in jobs for name in inputs}
    where = {"tenant_id": scope.tenant_id, "project_id": scope.project_id}
    there = {name for (name,) in tx.all("plan_known_artifacts", ids=encoded(sorted(wanted)), **where)}
    if lost := sorted(wanted - there):
        raise NotFound(f"artifact {lost[0]} not found")
    tx.send("plan_inputs", links)


def add_counts(tx: Tx, changes: Counter[tuple[str, str, str]]) -> None:
    """Keep the counters: one row per scope and status that changed."""
    rows = [(*name, n) for name, n in sorted(changes.items()) if n]
    for tenant, group in groupby(rows, key=itemgetter(0)):
        tx.enter(tenant)
        tx.send("count_add", list(group))
