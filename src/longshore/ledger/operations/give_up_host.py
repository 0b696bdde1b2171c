"""Abandon a host: all jobs that wait for it fail together, or move on to their next mirror.

One probe of a dead host decides for all its jobs; faults of a host that answers decide only for jobs first requested
there. The decision is a function of the host's row (`domain.policy.host_limits`), so every worker decides alike, also
after a restart. Jobs are processed in batches of one transaction each; if a worker dies in between, the next pass
continues.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from longshore.domain.identity.keys import host_of
from longshore.domain.kinds import DOWNLOAD, kind_of
from longshore.domain.model import SECOND, Job, JobRequest, Scope, Status
from longshore.domain.policy.host_limits import HostFacts, judged
from longshore.domain.settings import HostsSettings
from longshore.domain.transfer import mirrors
from longshore.domain.transfer.mirrors import Trail
from longshore.ledger.named_rows import JobRow
from longshore.ledger.operations.failure_log import logged
from longshore.ledger.operations.hosts import host_facts
from longshore.ledger.operations.make_claimable import mark_lanes
from longshore.ledger.operations.planning import add_counts, open_lanes
from longshore.ledger.rows import by_tenant, encoded, job_of
from longshore.ledger.transaction import Row, Tx

BATCH = 500


@dataclass(frozen=True, slots=True)
class FailedWithHost:
    """A job that failed because its host was given up."""

    scope: Scope
    job_id: str
    url: str | None
    reason: str
    message: str
    attempts: int


@dataclass(slots=True)
class GivenUpHost:
    """The result of one batch."""

    failed: list[FailedWithHost] = field(default_factory=list)
    moved: int = 0
    more: bool = False


def give_up_host(tx: Tx, host: str, *, defaults: HostsSettings, max_attempts: int, many: int = BATCH) -> GivenUpHost:
    """Fail the next jobs that wait for a host that is given up; those with other candidates go on to them."""
    facts = host_facts(tx, [host])[host]
    verdict = judged(facts, defaults, tx.now)
    done = GivenUpHost()
    if verdict is None:
        return done
    statement = "host_asked" if verdict.asked_only else "host_waiting"
    found = tx.all(statement, job_type=DOWNLOAD, host=host, before=verdict.at, many=many)
    rows = [JobRow._make(row) for row in found]
    reason, message = facts.reason or "connect", describe(facts)
    changes: Counter[tuple[str, str, str]] = Counter()
    for tenant, group in by_tenant(rows, lambda row: Scope(row.tenant_id, row.project_id)):
        tx.enter(tenant)
        batch = _Batch(tx, host, reason, message, max_attempts, own=verdict.asked_only)
        for _, row in group:
            batch.add(row)
        batch.write(changes)
        done.failed += batch.failed
        done.moved += len(batch.moves)
    add_counts(tx, changes)
    done.more = len(rows) == many
    if not done.more:
        tx.run("host_lanes_emptied", host=host)
    return done


def describe(facts: HostFacts) -> str:
    """Return the sentence that a job's failure carries."""
    if facts.nameless_at is not None:
        return f"no such name: {facts.host}"
    first = facts.faulty_since if facts.silent_since is None else facts.silent_since
    since = datetime.fromtimestamp((first or 0) / SECOND, UTC).isoformat(timespec="seconds")
    if facts.silent_since is None:
        return f"{facts.host} has answered with nothing but faults since {since} ({facts.failures} requests)"
    return f"{facts.host} has not answered since {since} ({facts.silences} requests)"


class _Batch:
    """The jobs of one tenant."""

    def __init__(self, tx: Tx, host: str, reason: str, message: str, max_attempts: int, *, own: bool) -> None:
        self._tx, self._host, self._reason, self._message = tx, host, reason, message
        self._own = own  # jobs fail for the reason of their own last attempt
        self._max_attempts = max_attempts
        self.failed: list[FailedWithHost] = []
        self._ends: list[Row] = []
        self._events: list[Row] = []
        self.moves: list[Row] = []
        self._ready: list[tuple[int, int]] = []

    def add(self, row: JobRow) -> None:
        job, seq = job_of(row), row.seq
        urls = (job.request.url or "", *job.request.mirrors)
        hosts = [host_of(url) for url in urls] if len(urls) > 1 else [self._host]
        trail = mirrors.without(hosts, mirrors.read(job.trail), self._host, *self._why(job))
        at = mirrors.next_of(len(urls), trail)
        if at is not None:
            self._move(job, seq, hosts[at], trail)
            return
        end = mirrors.over(len(urls), trail)
        allowed = self._max_attempts if job.request.max_attempts is None else job.request.max_attempts
        spent = job.attempts - trail.gains + 1 >= allowed
        if end.final or end.following is None or spent:
            tried = trail.tried[end.at]
            self._fail(job, seq, tried.reason, tried.message)
        else:
            self._move(job, seq, hosts[end.following], end.trail, attempts=1)

    def _why(self, job: Job) -> tuple[str, str]:
        if not self._own or job.reason is None or mirrors.ends_walk(job.reason):
            return self._reason, self._message
        return job.reason, f"{job.message} ({self._message})" if job.message else self._message

    def _fail(self, job: Job, seq: int, reason: str, message: str) -> None:
        now = self._tx.now
        debug_id = logged(job.job_id, job.lease_epoch, reason, message)
        self._ends.append((kind_of(job.job_type).failed, reason, message, debug_id, None, 0, now, seq, job.lease_epoch))
        facts = encoded({"reason": reason, "message": message, "host": self._host})
        self._events.append((*job.scope, job.job_id, "failed", now, facts))
        self.failed.append(FailedWithHost(job.scope, job.job_id, job.request.url, reason, message, job.attempts))

    def _move(self, job: Job, seq: int, host: str, trail: Trail, *, attempts: int = 0) -> None:
        now, request = self._tx.now, JobRequest(job.job_type, None, host=host, priority=job.priority)
        lane = open_lanes(self._tx, job.scope, [request])[host, job.job_type]
        due = now + SECOND if attempts else None
        self.moves.append((0 if due else 1, due, attempts, host, lane, trail.text(), now, seq, job.lease_epoch))
        if not due:
            self._ready.append((lane, job.priority))
        facts = encoded({"reason": self._reason, "message": self._message, "host": host, "next_attempt_at": due})
        self._events.append((*job.scope, job.job_id, "deferred", now, facts))

    def write(self, changes: Counter[tuple[str, str, str]]) -> None:
        tx = self._tx
        tx.send("end_failed", self._ends)
        tx.send("host_jobs_move", self.moves)
        tx.send("event_insert", self._events)
        mark_lanes(tx, self._ready)
        for gone in self.failed:
            changes[(*gone.scope, Status.PENDING.value)] -= 1
            changes[(*gone.scope, Status.FAILED.value)] += 1
