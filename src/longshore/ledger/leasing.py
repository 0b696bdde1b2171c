"""Leases: the one way in which a job gets a worker.

Claim walks lanes (ADR 0003): tenants in turn, within a tenant the highest priority first and then the lane that waited
longest, from each lane what its host allows. A lane whose host is full or rests is parked until a slot is free or the
rest is over, so the cost of a claim depends on what it takes, not on what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from longshore.domain.keys import check_text
from longshore.domain.model import SECOND, Lease, Micros, Scope, Status
from longshore.domain.politeness import NEVER, HostDefaults
from longshore.domain.states import DOWNLOAD, TORRENT
from longshore.errors import BadInput
from longshore.ledger.budgets import claimable
from longshore.ledger.hosts import Allowances
from longshore.ledger.planning import add_counts
from longshore.ledger.records import Renewed
from longshore.ledger.rows import by_tenant, check_scope, encoded, job_of
from longshore.ledger.sweeping import sweep
from longshore.ledger.tx import Row, Tx

TENANTS: Final = 64  # tenants that one claim looks at
LANES: Final = 256  # lanes of a tenant that one look takes


@dataclass(slots=True)
class Claiming:
    """One claim on its way: what is wanted and what was taken."""

    owner: str
    until: Micros
    wanted: int
    max_claims: int
    scope: Scope | None
    job_types: str | None
    allowed: Allowances
    taken: list[Row] = field(default_factory=list)  # not granted yet
    spent: list[Row] = field(default_factory=list)  # over max_claims
    leases: list[Lease] = field(default_factory=list)

    def keep(self, rows: list[Row]) -> int:
        """Sort out what was started too often; take the rest."""
        good = [row for row in rows if row[10] < self.max_claims]
        if len(good) < len(rows):
            self.spent += [row for row in rows if row[10] >= self.max_claims]
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
    defaults: HostDefaults | None = None,
    max_claims: int = 100,
    ahead: int = 0,
    at_once: int = NEVER,
    after_tenant: str = "",
) -> list[Lease]:
    """Lease up to `limit` jobs, as fairly as politeness allows."""
    until = tx.now + check_ttl(ttl_s)
    check_text("owner", owner, limit=500)
    if type(limit) is not int or limit < 0:
        raise BadInput("limit must be a whole number from 0")
    sweep(tx)
    work = Claiming(
        owner=owner,
        until=until,
        wanted=limit,
        max_claims=max_claims,
        scope=check_scope(scope) if scope is not None else None,
        job_types=None if job_types is None else encoded(list(job_types)),
        allowed=Allowances(tx, owner, defaults or HostDefaults(), ahead, at_once),
    )
    if job_ids is not None:
        _take_named(tx, work, job_ids)
    else:
        _walk(tx, work, after_tenant)
    work.allowed.write()
    return work.leases


def check_ttl(ttl_s: float) -> Micros:
    """Give a TTL in microseconds, or refuse it."""
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, (int, float)) or not 0 < ttl_s <= 86_400 * 365:
        raise BadInput(f"a lease lasts more than 0 seconds and less than a year, not {ttl_s!r}")
    return max(1, int(ttl_s * SECOND))


def _walk(tx: Tx, work: Claiming, after: str) -> None:
    """Serve tenants in turn until enough is taken or nothing is open."""
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
    """Name the tenants that have something open, in turn, beginning behind the one that was served last."""
    last = after
    while names := [row[0] for row in tx.all("open_tenants", after=last, many=TENANTS)]:
        yield from names
        if len(names) < TENANTS:
            break
        last = names[-1]
    last = ""
    while after and (names := [row[0] for row in tx.all("open_tenants", after=last, many=TENANTS)]):
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
    """Take up to a tenant's share from its open lanes; tell whether it may have more."""
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
        left = work.allowed.left(host)
        if left <= 0:
            parked.append((work.allowed.not_before(host), lane))
            continue
        alike = sum(1 for other in lanes[place : place + share] if other[2] == top)
        many = min(-(-share // alike), left)
        rows = tx.all("lane_heads", lane_id=lane, many=many)
        found += len(rows)
        count = work.keep(rows)
        work.allowed.take(host, count)
        share -= count
        served.append((tx.now, rows[-1][8] if rows else top, 1 if len(rows) == many else 0, lane))
    tx.enter(tenant)
    _grant(tx, work)  # before the next look at these lanes, which must find the rows behind them
    tx.many("lane_served", served)
    tx.many("lane_park", parked)
    # On PostgreSQL the rows of an open lane may all be held by others, who may wait for the lane that we hold: nothing
    # found is the end of this claim, or it would look for ever. (On SQLite an empty lane has just been closed.)
    return bool(found or parked or (served and tx.dialect == "sqlite"))


def _take_named(tx: Tx, work: Claiming, job_ids: Sequence[str]) -> None:
    """Take free jobs among named ones, as their hosts allow."""
    if work.scope is None:
        raise BadInput("job_ids need a scope")
    if work.wanted <= 0 or not job_ids:
        return
    room = claimable(tx, work.scope.tenant_id)
    rows = tx.all(
        "named_heads",
        tenant_id=work.scope.tenant_id,
        project_id=work.scope.project_id,
        job_ids=encoded(list(job_ids)),
        job_types=work.job_types,
        many=max(1_000, 4 * work.wanted),
    )
    work.allowed.load(row[32] for row in rows)
    for row in rows:
        if min(work.wanted, room) > 0 and work.allowed.left(row[32]) > 0:
            kept = work.keep([row])
            work.allowed.take(row[32], kept)
            room -= kept
    _grant(tx, work)


def _fail_spent(tx: Tx, work: Claiming) -> None:
    """A job that was started too often without an end is over: it would kill its workers for ever."""
    if not work.spent:
        return
    rows, work.spent = work.spent, []
    text = f"started {work.max_claims} times without an end"
    ends = [
        ("failed" if row[4] != DOWNLOAD else "FAILED", "max_claims", text, None, 0, tx.now, row[0], row[13])
        for row in rows
    ]
    tx.many("end_failed", ends)
    facts = encoded({"reason": "max_claims", "message": text})
    tx.many("event_insert", [(row[1], row[2], row[3], "failed", tx.now, facts) for row in rows])
    changes: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        changes[row[1], row[2], row[5]] -= 1
        changes[row[1], row[2], Status.FAILED.value] += 1
    add_counts(tx, changes)


def _grant(tx: Tx, work: Claiming) -> None:
    """Write the leases: one update and one row of job_claims each."""
    _fail_spent(tx, work)
    rows, now, owner, until = work.taken, tx.now, work.owner, work.until
    work.taken = []
    if not rows:
        return
    slots = {row[32]: work.allowed.slots(row[32]) for row in rows}
    tx.many(
        "grant",
        [(owner, until, row[32] or None, slots[row[32]], 0 if row[4] == DOWNLOAD else 1, now, row[0]) for row in rows],
    )
    tx.many("claim_insert", [(row[1], row[2], row[3], row[13] + 1, owner, row[32], now) for row in rows])
    changes: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        if row[5] == "pending":
            changes[row[1], row[2], Status.PENDING.value] -= 1
            changes[row[1], row[2], Status.PROCESSING.value] += 1
    add_counts(tx, changes)
    work.leases += [_lease(row, owner, until, now, slots[row[32]]) for row in rows]


_GRANTED: Final = {DOWNLOAD: "LEASED", TORRENT: "downloading"}


def _lease(row: Row, owner: str, until: Micros, now: Micros, slots: int) -> Lease:
    after = list(row)
    after[5], after[6] = "processing", _GRANTED.get(row[4], "processing")
    after[7], after[11], after[12], after[13], after[14], after[24] = None, owner, until, row[13] + 1, row[14] + 1, now
    if row[4] != DOWNLOAD:
        after[10] += 1
    job = job_of(tuple(after))
    return Lease(job.scope, job.job_id, job.lease_epoch, owner, until, job, slots)


def renew(tx: Tx, leases: Sequence[Lease], ttl_s: float) -> Renewed:
    """Prolong leases that are ours and live; name the ones that are lost and the jobs that should stop."""
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
    lost = frozenset((lease.job_id, lease.epoch) for lease in leases) - held
    return Renewed(lost, frozenset(stop), until)
