"""`longshore status`: counts of jobs and artifacts, and what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import counted, moment, size

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.ledger.queries.due_work import Wait

HOSTS: Final = 5  # of which the waiting jobs are shown
NAMED: Final = 10_000  # waiting jobs of a run that are looked at


@click.command("status")
@click.option("--run", "run_id", metavar="NAME", help="Only jobs of this run.")
@common
def command(call: Call, run_id: str | None) -> int:
    """Show the number of jobs by status, stored artifacts, items that are still missing, and hosts that jobs wait for."""
    with call.ledger() as ledger:
        jobs, held, missing = _figures(call, ledger) if run_id is None else _figures_of_run(call, ledger, run_id)
        waiting = _waiting(call, ledger, run_id) if jobs["pending"] else []
        abandoned = _abandoned(call, ledger) if jobs["processing"] else 0
    failures = {"missing": missing, "retried": jobs["failed"] - missing}
    if call.json:
        call.output.record(
            "status", {"jobs": jobs, "held": held, "failures": failures, "waiting": waiting, "abandoned": abandoned}
        )
    else:
        _text(call, jobs, held, failures, waiting)
        if abandoned:
            jobs_of = f"{counted(abandoned, 'job')} of the whole depot held by workers that died"
            call.output.text(f"{jobs_of}: the next `longshore run` takes them over at once")
    return 0


def _figures(call: Call, ledger: Ledger) -> tuple[dict[str, int], dict[str, int], int]:
    """Return the jobs by status, the stored artifacts, and how many items are missing."""
    from longshore.ledger.queries.history import failures_left
    from longshore.ledger.queries.throughput import held_totals

    totals = ledger.read(held_totals, call.scope)
    held = {
        "artifacts": totals.get("artifacts", 0),
        "bytes": totals.get("artifact_bytes", 0),
        "saved_bytes": max(0, totals.get("artifact_bytes", 0) - totals.get("blob_bytes", 0)),
        "missing_artifacts": totals["missing"],
        "missing_bytes": totals["missing_bytes"],
    }
    jobs = {status.value: count for status, count in ledger.counts(call.scope).items()}
    return jobs, held, ledger.read(failures_left, call.scope)


def _figures_of_run(call: Call, ledger: Ledger, run_id: str) -> tuple[dict[str, int], dict[str, int], int]:
    from longshore.ledger.queries.runs import run

    found = ledger.read(run, call.scope, run_id)
    held = {"artifacts": found.artifacts, "bytes": found.bytes, "saved_bytes": found.saved_bytes}
    return {status.value: count for status, count in found.jobs.items()}, held, found.missing


def _text(
    call: Call,
    jobs: dict[str, int],
    held: dict[str, int],
    failures: dict[str, int],
    waiting: list[dict[str, Any]],
) -> None:
    from longshore.cli.output.event_output import waiting_text
    from longshore.cli.output.failure_lines import lost_text

    call.output.table(["status", "jobs"], jobs.items())
    saved = f"; {size(held['saved_bytes'])} saved, because equal bytes are stored once" if held["saved_bytes"] else ""
    call.output.text(f"{counted(held['artifacts'], 'artifact')}, {size(held['bytes'])}{saved}")
    if held.get("missing_artifacts"):
        call.output.text(lost_text(held["missing_artifacts"], held["missing_bytes"]))
    if jobs["failed"]:
        again = f" ({failures['retried']} of the failed jobs were tried again)" if failures["retried"] else ""
        why = ": `longshore failures` says why" if failures["missing"] else ""
        call.output.text(f"{failures['missing']} still missing{again}{why}")
    for facts in waiting:
        call.output.text(waiting_text(facts))


def _abandoned(call: Call, ledger: Ledger) -> int:
    """Count the leases of processes of this machine that died; another process releases them."""
    from pathlib import Path

    from longshore.ledger.queries.all_tenants import leases
    from longshore.worker.liveness import Liveness

    dead = set(Liveness(Path(call.settings.depot) / "alive", "").dead())
    return sum(one.leases for one in ledger.read(leases) if one.owner in dead) if dead else 0


def _waiting(call: Call, ledger: Ledger, run_id: str | None) -> list[dict[str, Any]]:
    """Return which hosts jobs wait for, why and until when; most jobs first."""
    now = ledger.now()
    return [
        {
            "host": wait.host,
            "reason": wait.reason,
            "until": moment(wait.until) if wait.until is not None else None,
            "jobs": wait.jobs,
        }
        for wait in _waits(call, ledger, run_id)
        if wait.host and (wait.until is None or wait.until > now)
    ]


def _waits(call: Call, ledger: Ledger, run_id: str | None) -> list[Wait]:
    from longshore.depot.derived_settings import hosts_with_profiles
    from longshore.domain.kinds import Status
    from longshore.ledger import JobFilter
    from longshore.ledger.queries.due_work import waits, waits_of

    limits = hosts_with_profiles(call.settings)
    if run_id is None:
        return ledger.read(waits, call.scope, "", limits, HOSTS)
    named = ledger.matching_ids(call.scope, JobFilter(run_id=run_id, status=Status.PENDING), NAMED)
    return ledger.read(waits_of, call.scope, "", limits, named, HOSTS)
