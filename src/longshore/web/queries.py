"""Queries of pages and API, each composed of ledger reads in one snapshot. Each takes `tx` first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from longshore.domain.kinds import Status, kind_of
from longshore.domain.model import Micros, Scope
from longshore.domain.policy.redaction import safe_text
from longshore.domain.settings import HostsSettings
from longshore.errors import NotFound
from longshore.ledger.operations import audit_log, hosts
from longshore.ledger.queries import all_tenants, due_work, history, lookup, throughput
from longshore.ledger.records import Effect, Host
from longshore.ledger.transaction import Tx
from longshore.web.dashboard.render import stamp
from longshore.web.problems import Problem
from longshore.web.serializers import View, artifact_view, job_view, remedy_of, shown_url, span_s

NOTHING: Final = {"artifacts": 0, "artifact_bytes": 0, "blobs": 0, "blob_bytes": 0}


def stats(tx: Tx, scope: Scope) -> View:
    """Count jobs, artifacts and savings."""
    counted = lookup.counts(tx, scope)
    totals = NOTHING | throughput.held_totals(tx, scope)
    return {
        "jobs": {status.value: counted.get(status, 0) for status in Status},
        "held": {
            "artifacts": totals["artifacts"],
            "bytes": totals["artifact_bytes"],
            "saved_artifacts": max(0, totals["artifacts"] - totals["blobs"]),
            "saved_bytes": max(0, totals["artifact_bytes"] - totals["blob_bytes"]),
        },
        "oldest_waiting_at": stamp(due_work.oldest_ready(tx, scope)),
    }


Seal = Callable[[int], str]  # encodes an event's number so that it reveals nothing about other tenants


def event_view(event: history.Event, seal: Seal) -> View:
    """Show one event."""
    return {
        "seq": seal(event.seq),
        "at": stamp(event.at),
        "job_id": event.job_id,
        "kind": event.kind,
        "data": clean(event.facts),
    }


def clean(facts: dict[str, Any]) -> dict[str, Any]:
    """Remove internal fields from recorded facts."""
    return {name: value for name, value in facts.items() if "pointer" not in name and name not in ("path", "headers")}


def effect_view(effect: Effect) -> View:
    """Show one effect without its request and result."""
    return {
        "kind": effect.kind,
        "key": effect.key,
        "state": effect.state,
        "epoch": effect.epoch,
        "begun_at": stamp(effect.started_at),
        "confirmed_at": stamp(effect.finished_at),
        "took_s": span_s(effect.started_at, effect.finished_at),
    }


def claim_view(claim: history.Claim) -> View:
    """Show one lease grant."""
    return {
        "epoch": claim.epoch,
        "owner": claim.owner,
        "claimed_at": stamp(claim.claimed_at),
        "ended_at": stamp(claim.ended_at),
        "ended_how": claim.outcome if not claim.reason else f"{claim.outcome}: {claim.reason}",
    }


def job_detail(tx: Tx, scope: Scope, job_id: str, seal: Seal) -> View:
    """Return one job's history."""
    job = lookup.job(tx, scope, job_id)
    story = history.timeline(tx, scope, job_id)
    return {
        "job": job_view(job),
        "events": [event_view(event, seal) for event in story.events],
        "claims": [claim_view(claim) for claim in story.claims],
        "effects": [effect_view(effect) for effect in story.effects],
        "artifacts": [artifact_view(one) for one in lookup.results(tx, scope, job_id)],
    }


def artifact_detail(tx: Tx, scope: Scope, artifact_id: str) -> View:
    """Return an artifact's provenance and uses."""
    artifact = lookup.artifact(tx, scope, artifact_id)
    links = history.provenance(tx, scope, artifact_id)
    return {"artifact": artifact_view(artifact), "provenance": [_link_view(link) for link in links]}


def artifact_story(tx: Tx, scope: Scope, artifact_id: str) -> View:
    """Return the same with every job whose result is these bytes, and with the inputs and parameters."""
    detail = artifact_detail(tx, scope, artifact_id)
    same = history.sources(tx, scope, detail["artifact"]["sha256"])
    return {
        **detail,
        "sources": [_link_view(one) | {"status": one.status, "artifact_id": one.artifact_id} for one in same],
        "uses": [link for link in detail["provenance"] if link["role"] == "input"],
        "made_of": _made_of(tx, scope, detail["artifact"]["created_by_job_id"]),
    }


def _link_view(link: history.Link | history.Source) -> View:
    return {
        "job_id": link.job_id,
        "role": link.role,
        "url": shown_url(link.url),
        "work_id": shown_url(link.work_id),
        "at": stamp(link.at),
    }


def _made_of(tx: Tx, scope: Scope, job_id: str) -> View | None:
    """Return the inputs and parameters of a job of a declared type; None for other kinds and purged jobs."""
    try:
        made_by = lookup.job(tx, scope, job_id)
    except NotFound:
        return None
    if not kind_of(made_by.job_type).declared:
        return None
    inputs = lookup.results(tx, scope, job_id, role="input")
    params = {name: safe_text(str(value), 300) for name, value in made_by.request.params.items()}
    return {
        "job_id": job_id,
        "job_type": made_by.job_type,
        "inputs": [artifact_view(one) for one in inputs],
        "params": params,
    }


def failure_groups(tx: Tx, scope: Scope, run_id: str | None = None, *, skip: int = 0, limit: int = 1_000) -> list[View]:
    """Group permanent failures, with a remedy for each."""
    groups = []
    for group in history.failures(tx, scope, limit, run_id=run_id, skip=skip):
        meaning, remedy = remedy_of(group.reason)
        groups.append(
            {
                "reason": group.reason,
                "host": group.host,
                "count": group.count,
                "sample_job_id": group.sample_job_id,
                "sample_url": shown_url(group.sample_url),
                "message": group.message,
                "meaning": meaning,
                "remedy": remedy,
                "last_at": stamp(group.last_at),
            }
        )
    return groups


def shown_host(host: Host, now: Micros, defaults: HostsSettings) -> View:
    """Show the limits and the state of one host."""
    state, until = all_tenants.host_state(host, now, defaults)
    return {
        "host": host.host,
        "state": state,
        "concurrency": host.concurrency,
        "rate_per_s": host.rate_per_s,
        "paused": host.paused,
        "failures": host.failures,
        "reason": host.reason,
        "in_flight": host.in_flight,
        "until": stamp(until) if until is not None else None,
    }


def host_page(tx: Tx, defaults: HostsSettings, after: str | None, limit: int) -> View:
    """List hosts by name."""
    rows = hosts.hosts(tx, after or "", limit + 1)
    shown = [shown_host(row, tx.now, defaults) for row in rows[:limit]]
    return {"hosts": shown, "next": rows[limit - 1].host if len(rows) > limit else None}


def host_view(tx: Tx, defaults: HostsSettings, host: str) -> View | None:
    """Show one host."""
    row = all_tenants.host(tx, host)
    return shown_host(row, tx.now, defaults) if row else None


def audit_page(tx: Tx, scope: Scope, after: str | None, limit: int) -> View:
    """Read a page of the audit log."""
    if after is not None and not (after.isascii() and after.isdigit() and len(after) < 19):
        raise Problem(422, "bad_cursor", "not a cursor of the audit log")
    rows = audit_log.audit_entries(tx, scope, int(after) if after else None, limit + 1)
    entries = [
        {
            "seq": row.seq,
            "at": stamp(row.at),
            "token_id": row.token_id,
            "name": row.name,
            "action": row.action,
            "target": row.target,
            "remote": row.remote,
            "detail": row.detail,
        }
        for row in rows[:limit]
    ]
    return {"entries": entries, "next": str(rows[limit - 1].seq) if len(rows) > limit else None}
