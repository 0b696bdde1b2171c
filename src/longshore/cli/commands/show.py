"""`longshore show`: one job and its history."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from longshore.cli.job_ids import full_id
from longshore.cli.options import Call, common
from longshore.cli.output.writer import moment, readable, short_moment, size

if TYPE_CHECKING:
    from longshore.domain.model import Artifact


@click.command("show")
@click.argument("job_id", metavar="JOB")
@common
def command(call: Call, job_id: str) -> int:
    """Show one job: its state, its results and its timeline.

    The last characters of the id are enough, at least 6, if no other job's id ends with them.
    """
    from longshore.cli.output.failure_lines import remedy
    from longshore.cli.output.job_fields import job_facts

    with call.ledger() as ledger:
        job_id = full_id(ledger, call.scope, job_id)
        job = ledger.job(call.scope, job_id)
        timeline = ledger.timeline(call.scope, job_id)
        artifacts = [artifact_facts(one) | _place(call, one) for one in ledger.results(call.scope, job_id)]
        inputs = [artifact_facts(one) for one in ledger.results(call.scope, job_id, role="input")]
    facts = job_facts(job)
    if call.json:
        call.output.record("show", {"job": facts, "inputs": inputs, "artifacts": artifacts, **timeline_facts(timeline)})
        return 0
    for name, value in facts.items():
        if value not in (None, []) and not name.endswith("_artifacts"):
            value = readable(value) if name.endswith("_at") else value
            call.output.text(f"{name:<16} {value}")
    if job.reason:
        call.output.text(f"{'what to do':<16} {remedy(job.reason)}")
    for role, one in [*(("input", one) for one in inputs), *(("result", one) for one in artifacts)]:
        call.output.text(f"{role:<16} {one['artifact_id']}  {size(one['size_bytes'])}  {one['sha256']}")
        if role == "result":
            call.output.text(f"{'content':<16} {_content(one)}")
    call.output.text()
    for when, what in story(timeline):
        call.output.text(f"{when}  {what}")
    return 0


def _place(call: Call, artifact: Artifact) -> dict[str, str]:
    """Return the path of an artifact whose bytes are in a local store."""
    if artifact.backend != "local" or artifact.availability != "available" or "://" in call.settings.store:
        return {}
    return {"path": os.path.join(os.path.abspath(call.settings.store), artifact.pointer)}


def _content(facts: dict[str, Any]) -> str:
    """Say how to read the bytes of a result."""
    if facts["availability"] != "available":
        return "lost or damaged: `longshore reconcile` and `longshore run` fetch what has a source"
    if "path" in facts:
        return f"{facts['path']}  (read it there, never write to it; `longshore export tree -o DIR` copies)"
    return f"`longshore export tree -o DIR`, or GET /api/v1/artifacts/{facts['artifact_id']}/content"


def artifact_facts(artifact: Artifact) -> dict[str, Any]:
    """Return the public fields of an artifact: all but its pointer."""
    return {
        "artifact_id": artifact.artifact_id,
        "artifact_type": artifact.artifact_type,
        "sha256": artifact.sha256,
        "size_bytes": artifact.size_bytes,
        "content_type": artifact.content_type,
        "name": artifact.name,
        "schema_version": artifact.schema_version,
        "metadata": artifact.metadata,
        "availability": artifact.availability,
        "created_at": moment(artifact.created_at),
    }


def timeline_facts(timeline: Any) -> dict[str, Any]:
    """Return the fields of a timeline entry."""
    return {
        "events": [_plain(one) for one in timeline.events],
        "claims": [_plain(one) for one in timeline.claims],
        "effects": [_plain(one) for one in timeline.effects],
    }


def _plain(record: Any) -> dict[str, Any]:
    import dataclasses

    return {
        name: moment(value) if isinstance(value, int) and (name == "at" or name.endswith("_at")) else _public(value)
        for name, value in dataclasses.asdict(record).items()
    }


def _shown(name: str, value: Any) -> Any:
    return moment(value) if name.endswith("_at") and isinstance(value, int) else value


def _public(value: Any) -> Any:
    """Remove pointers from recorded facts."""
    if isinstance(value, dict):
        return {name: _public(item) for name, item in value.items() if "pointer" not in name}
    return value


def story(timeline: Any) -> list[tuple[str, str]]:
    """Return events, claims and effects in chronological order."""
    lines: list[tuple[int, str]] = []
    for event in timeline.events:
        detail = ", ".join(
            f"{name}={_shown(name, value)}" for name, value in event.facts.items() if value not in (None, "", {})
        )
        lines.append((event.at, f"{event.kind:<12} {detail}"))
    lines += [
        (effect.started_at, f"effect       {effect.kind} {effect.state} (epoch {effect.epoch})")
        for effect in timeline.effects
    ]
    return [(short_moment(at), text) for at, text in sorted(lines, key=lambda pair: pair[0])]
