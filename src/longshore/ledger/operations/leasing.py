"""Leases: how a job gets a worker, and why only one at a time.

Problem: many workers take jobs from one table. Each must find its next jobs without reading those that it may not take
(a host that is full, a tenant over its budget, a million ready jobs of one host), and a worker that died or stands still
must never write over the one that took the job after it.

Invariant: a lease is (owner, until, epoch) in the row of the job. The epoch grows by one with every grant and is never
reset, so (job, epoch) names one attempt for ever. Every write after the claim is fenced: it reads the row by job, epoch
and owner (`fencing.fence`) inside the transaction that writes. No row means LeaseLost and nothing is written. The clock
decides only when a job may be granted again, never whether a write is valid.

Order of one claim: first what has become claimable by itself (expired leases, waiting jobs that are due); then tenants in
turn, beginning after the one that was served last; within a tenant its open lanes (tenant, project, host, type) by
priority and then by the time of their last turn; from each lane as many jobs as its host allows. A lane whose host is full
or rests is parked until a slot is free or the rest is over. So the cost of a claim depends on what it takes, not on what
is stored (ADR 0003).

Not done: one ordered scan over all ready jobs (one slow host fills the front of the queue), advisory locks instead of
rows (they die with the connection, not with the worker, and SQLite has none), a heartbeat table beside the jobs (two rows
that can contradict each other).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from longshore.domain.identity.keys import check_text
from longshore.domain.kinds import kind_of
from longshore.domain.model import SECOND, Lease, Micros, Scope, Status
from longshore.domain.policy.host_limits import NEVER
from longshore.domain.settings import HostsSettings
from longshore.errors import BadInput
from longshore.ledger.named_rows import JobRow
from longshore.ledger.operations.failure_log import logged
from longshore.ledger.operations.hosts import Allowances
from longshore.ledger.operations.make_claimable import expire_and_promote
from longshore.ledger.operations.planning import add_counts
from longshore.ledger.operations.stages import Progress, report
from longshore.ledger.operations.tenant_budgets import claimable
from longshore.ledger.records import Renewed
from longshore.ledger.rows import by_tenant, check_scope, encoded, granted_job
from longshore.ledger.transaction import Row, Tx

TENANTS: Final = 64  # tenants that one claim looks at
LANES: Final = 256  # lanes of a tenant that are read at once


@dataclass(slots=True)
class Claiming:
    """The state of one claim: the request and the jobs taken so far."""

    owner: str
    until: Micros
    wanted: int
    max_claims: int
    scope: Scope | None
    job_types: str | None
    allowed: Allowances
    taken: list[JobRow] = field(default_factory=list)  # not granted yet
    spent: list[JobRow] = field(default_factory=list)  # over max_claims
    leases: list[Lease] = field(default_factory=list)

    def keep(self, rows: Sequence[JobRow]) -> int:
        """Take the jobs, except those that reached `max_claims`."""
        good = [row for row in rows if row.claims < self.max_claims]
        if len(good) < len(rows):
            self.spent += [row for row in rows if row.claims >= self.max_claims]
        self.taken += good
        self.wanted -= len(good)
        return len(good)


def claim(
    tx: Tx,
    owner: str,
    *,
    limit: int,
    ttl_s: float,
    job_types: Sequence[str] | None = None,
    scope: Scope | None = None,
    job_ids: Sequence[str] | None = None,
    run_id: str | None = None,
    defaults: HostsSettings | None = None,
    max_claims: int = 100,
    ahead: int = 0,
    at_once: int = NEVER,
    after_tenant: str = "",
) -> list[Lease]:
    """Lease up to `limit` jobs, as fairly as politeness allows: of all, of named ones, or of one run."""
    until = tx.now + check_ttl(ttl_s)
    check_text("owner", owner, limit=500)
    if type(limit) is not int or limit < 0:
        raise BadInput("limit must be a whole number from 0")
    expire_and_promote(tx)
    work = Claiming(
        owner=owner,
        until=until,
        wanted=limit,
        max_claims=max_claims,
        scope=check_scope(scope) if scope is not None else None,
        job_types=None if job_types is None else encoded(list(job_types)),
        allowed=Allowances(tx, owner, defaults or HostsSettings(), ahead, at_once),
    )
    if job_ids is not None or run_id is not None:
        _take_chosen(tx, work, job_ids, run_id)
    else:
        _walk(tx, work, after_tenant)
    work.allowed.write()
    return work.leases


def check_ttl(ttl_s: float) -> Micros:
    """Return a TTL in microseconds; raise BadInput if it is out of range."""
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, (int, float)) or not 0 < ttl_s <= 86_400 * 365:
        raise BadInput(f"a lease lasts more than 0 seconds and less than a year, not {ttl_s!r}")
    return max(1, int(ttl_s * SECOND))


def _walk(tx: Tx, work: Claiming, after: str) -> None:
    """Serve tenants round-robin until the limit is reached or no lane is open."""
    room = _within_budget(tx, [work.scope.tenant_id] if work.scope else _tenants(tx, after))
    tenants = list(room)
    while work.wanted > 0 and tenants:
        still = []
        for place, tenant in enumerate(tenants):
            share = min(-(-work.wanted // (len(tenants) - place)), room[tenant])
            before = work.wanted
            if share > 0 and _serve(tx, work, tenant, share):
                still.append(tenant)
            room[tenant] -= before - work.wanted
        tenants = [tenant for tenant in still if room[tenant] > 0]


def _tenants(tx: Tx, after: str) -> Iterator[str]:
    """Yield the tenants that have open lanes, beginning after the one that was served last."""
    last = after
    while names := [name for (name,) in tx.all("open_tenants", after=last, many=TENANTS)]:
        yield from names
        if len(names) < TENANTS:
            break
        last = names[-1]
    last = ""
    while after and (names := [name for (name,) in tx.all("open_tenants", after=last, many=TENANTS)]):
        for name in names:
            if name > after:
                return
            yield name
        if len(names) < TENANTS:
            return
        last = names[-1]


def _within_budget(tx: Tx, tenants: Iterable[str]) -> dict[str, int]:
    """Take tenants that may have something worked on, with how much; the others wait for the end of what they have."""
    room: dict[str, int] = {}
    for tenant in tenants:
        if (left := claimable(tx, tenant)) > 0:
            room[tenant] = left
            if len(room) == TENANTS:
                break
    return room


def _serve(tx: Tx, work: Claiming, tenant: str, share: int) -> bool:
    """Claim up to a tenant's share from its open lanes; return whether it may have more."""
    project = work.scope.project_id if work.scope else None
    lanes = tx.all("open_lanes", tenant_id=tenant, project_id=project, job_types=work.job_types, many=LANES)
    if not lanes:
        return False
    work.allowed.load(host for _, host, _ in lanes)
    served: list[Row] = []
    parked: list[Row] = []
    found = 0
    for place, (lane, host, top) in enumerate(lanes):
        if share <= 0:
            break
        left = work.allowed.left(host, tenant)
        if left <= 0:
            parked.append((work.allowed.not_before(host, tenant), lane))
            continue
        alike = sum(1 for _, _, other in lanes[place : place + share] if other == top)
        many = min(-(-share // alike), left)
        rows = [JobRow._make(row) for row in tx.all("lane_heads", lane_id=lane, many=many)]
        found += len(rows)
        count = work.keep(rows)
        work.allowed.take(host, count)
        share -= count
        served.append((tx.now, rows[-1].priority if rows else top, 1 if len(rows) == many else 0, lane))
    tx.enter(tenant)
    _grant(tx, work)  # before these lanes are read again, which must return the rows after these
    tx.send("lane_served", served)
    tx.send("lane_park", parked)
    # On PostgreSQL the rows of an open lane may all be held by others, who may wait for the lane that we hold: nothing
    # found is the end of this claim, or it would look for ever. (On SQLite an empty lane has just been closed.)
    return bool(found or parked or (served and tx.dialect == "sqlite"))


def _take_chosen(tx: Tx, work: Claiming, job_ids: Sequence[str] | None, run_id: str | None) -> None:
    """Take free jobs among named ones, or of one run, as their hosts allow."""
    if work.scope is None:
        raise BadInput("job_ids and run_id need a scope")
    if work.wanted <= 0 or job_ids == ():
        return
    room = claimable(tx, work.scope.tenant_id)
    where = {"job_types": work.job_types, "many": max(1_000, 4 * work.wanted), **work.scope._asdict()}
    if job_ids is not None:
        found = tx.all("named_heads", job_ids=encoded(list(job_ids)), **where)
    else:
        found = tx.all("run_heads", run_id=run_id, **where)
    rows = [JobRow._make(row) for row in found]
    work.allowed.load(row.host for row in rows)
    for row in rows:
        if min(work.wanted, room) > 0 and work.allowed.left(row.host, row.tenant_id) > 0:
            kept = work.keep([row])
            work.allowed.take(row.host, kept)
            room -= kept
    _grant(tx, work)


def _fail_spent(tx: Tx, work: Claiming) -> None:
    """Fail jobs that reached `max_claims`; they probably crash their worker."""
    if not work.spent:
        return
    rows, work.spent = work.spent, []
    why, text = "max_claims", f"started {work.max_claims} times without an end"
    ends = [
        (kind_of(row.job_type).failed, why, text, logged(row.job_id, row.lease_epoch, why, text), None, 0, tx.now, *end)
        for row, end in ((row, (row.seq, row.lease_epoch)) for row in rows)
    ]
    tx.send("end_failed", ends)
    facts = encoded({"reason": why, "message": text})
    tx.send("event_insert", [(row.tenant_id, row.project_id, row.job_id, "failed", tx.now, facts) for row in rows])
    changes: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        changes[row.tenant_id, row.project_id, row.status] -= 1
        changes[row.tenant_id, row.project_id, Status.FAILED.value] += 1
    add_counts(tx, changes)


def _grant(tx: Tx, work: Claiming) -> None:
    """Write the leases: one update and one row of job_claims each."""
    _fail_spent(tx, work)
    rows, now, owner, until = work.taken, tx.now, work.owner, work.until
    work.taken = []
    if not rows:
        return
    slots = {row.host: work.allowed.slots(row.host) for row in rows}
    dated = {host: work.allowed.dated_slots(host) for host in slots}
    starts = {name: _start(name) for name in {row.job_type for row in rows}}
    tx.send(
        "grant",
        [(owner, until, row.host or None, dated[row.host], *starts[row.job_type], now, row.seq) for row in rows],
    )
    tx.send(
        "claim_insert",
        [(row.tenant_id, row.project_id, row.job_id, row.lease_epoch + 1, owner, row.host, now) for row in rows],
    )
    changes: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        if row.status == "pending":
            changes[row.tenant_id, row.project_id, Status.PENDING.value] -= 1
            changes[row.tenant_id, row.project_id, Status.PROCESSING.value] += 1
    add_counts(tx, changes)
    for row in rows:
        job = granted_job(row, *starts[row.job_type], owner, until, now)
        work.leases.append(Lease(job.scope, job.job_id, job.lease_epoch, owner, until, job, slots[row.host]))


def _start(job_type: str) -> tuple[str, int]:
    """Return the stage of a job that was just granted, and whether the claim counts yet."""
    kind = kind_of(job_type)
    return kind.granted, 1 if kind.counted_at_grant else 0


def renew(tx: Tx, leases: Sequence[Lease], ttl_s: float, progress: Sequence[Progress] = ()) -> Renewed:
    """Renew live leases, and store the progress of some; return the lost ones and the jobs to be canceled."""
    until = tx.now + check_ttl(ttl_s)
    held: set[tuple[str, int]] = set()
    stop: set[str] = set()
    for tenant, group in by_tenant(leases, lambda lease: lease.scope):
        tx.enter(tenant)
        rows = [(until, tx.now, *lease.scope, lease.job_id, lease.epoch, lease.owner) for _, lease in group]
        for job_id, epoch, cancel_at in tx.many("renew", rows):
            held.add((job_id, epoch))
            if cancel_at is not None:
                stop.add(job_id)
    report(tx, progress)
    lost = frozenset((lease.job_id, lease.epoch) for lease in leases) - held
    return Renewed(lost, frozenset(stop), until)
