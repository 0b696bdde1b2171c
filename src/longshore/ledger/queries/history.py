"""The history of jobs and artifacts: events, timelines, failures by reason, provenance."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from longshore.domain.identity.keys import check_text
from longshore.domain.model import Micros, Scope
from longshore.errors import BadInput
from longshore.ledger.operations.effects import effect_of
from longshore.ledger.queries.lookup import artifact, checked_limit, job, scope_values
from longshore.ledger.records import Effect
from longshore.ledger.rows import encoded
from longshore.ledger.transaction import Row, Tx

MOST: Final = 10_000  # of one job's history, of one artifact's links
TOP: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    seq: int
    at: Micros
    job_id: str | None
    kind: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claim:
    """One grant of a lease: who, where, when, how it ended."""

    epoch: int
    owner: str
    host: str
    claimed_at: Micros
    ended_at: Micros | None
    outcome: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything that is kept of one job's life."""

    events: list[Event]
    claims: list[Claim]
    effects: list[Effect]


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed jobs of one reason at one host, with the newest as an example."""

    reason: str
    host: str
    count: int
    sample_job_id: str
    sample_url: str | None
    message: str | None
    last_at: Micros | None


@dataclass(frozen=True, slots=True)
class Link:
    """One job that led to an artifact or used it."""

    job_id: str
    role: str
    url: str | None
    work_id: str | None
    at: Micros | None
    job_type: str


def failures(
    tx: Tx, scope: Scope, limit: int = 1_000, *, run_id: str | None = None, skip: int = 0
) -> list[FailureGroup]:
    """Group what failed and was not tried again, in one run or in all, by reason and host, the largest first; without the
    first `skip` groups of all."""
    where = scope_values(tx, scope) | {"many": checked_limit(limit)}
    if run_id is None:
        rows = tx.all("failure_groups", skip=skip, **where)
    else:
        rows = tx.all("failure_groups_of_run", run_id=check_text("run_id", run_id), **where)
    return [FailureGroup(reason, host, int(count), *rest) for reason, host, count, *rest in rows]


@dataclass(frozen=True, slots=True)
class Source:
    """A job whose result is some given bytes; `artifact_id` None: it reused another job's artifact."""

    job_id: str
    role: str
    url: str | None
    work_id: str | None
    at: Micros | None
    job_type: str
    status: str
    artifact_id: str | None


def sources(tx: Tx, scope: Scope, sha256: str, limit: int = 1_000) -> list[Source]:
    """Return every job whose result is these bytes: it fetched, made or reused them."""
    where = scope_values(tx, scope) | {"many": checked_limit(limit)}
    found = [Source(*row) for row in tx.all("same_bytes", sha256=sha256, **where)]
    known = {one.job_id for one in found}
    reusing = tx.all("reusing", job_ids=encoded(sorted(known)), **where) if known else []
    return found + [one for one in (Source(*row) for row in reusing) if one.job_id not in known]


def retried_as(tx: Tx, scope: Scope, job_id: str) -> str | None:
    """Return the newest job that tries this one again."""
    row = tx.one("retried_as", job_id=job_id, **scope_values(tx, scope))
    return str(row[0]) if row else None


def failures_left(tx: Tx, scope: Scope) -> int:
    """Count the failed jobs that were not tried again: the items that are still missing."""
    (count,) = tx.one("failures_left", **scope_values(tx, scope)) or (0,)
    return int(count)


def timeline(tx: Tx, scope: Scope, job_id: str) -> Timeline:
    """Return one job's whole life: its planning, events, grants and effects."""
    record = job(tx, scope, job_id)
    where = scope._asdict() | {"job_id": job_id, "many": MOST}
    planned = Event(0, record.created_at, job_id, "planned", {"retry_of": record.retry_of} if record.retry_of else {})
    return Timeline(
        events=[planned, *(_event(row) for row in tx.all("job_events", **where))],
        claims=[Claim(*row) for row in tx.all("job_grants", **where)],
        effects=[effect_of(row) for row in tx.all("job_effects", **where)],
    )


def _event(row: Row) -> Event:
    *known, facts = row
    return Event(*(*known, json.loads(facts) if facts else {}))


def events_after(tx: Tx, scope: Scope, seq: int, limit: int = 500) -> list[Event]:
    """Return what happened in a project after a number; nothing can appear later before what was given."""
    where = scope_values(tx, scope)
    if type(seq) is not int or not 0 <= seq < TOP:
        raise BadInput(f"not a number of an event: {seq!r}")
    return [_event(row) for row in tx.all("events_after", seq=seq, many=checked_limit(limit), **where)]


def last_event(tx: Tx, scope: Scope) -> int:
    """Return the latest event sequence number (a cursor for new events only)."""
    (seq,) = tx.one("last_event", **scope_values(tx, scope)) or (None,)
    return int(seq or 0)


def provenance(tx: Tx, scope: Scope, artifact_id: str, limit: int = 1_000) -> list[Link]:
    """Return every job that led to an artifact or used it, with its URL and work."""
    artifact(tx, scope, artifact_id)
    rows = tx.all("artifact_links", artifact_id=artifact_id, many=checked_limit(limit), **scope._asdict())
    return [Link(*row) for row in rows]
