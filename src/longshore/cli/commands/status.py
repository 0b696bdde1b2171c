"""`longshore status`: counts of jobs and artifacts, and what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import counted, moment, size

if TYPE_CHECKING:
    from longshore.ledger import Ledger

HOSTS: Final = 5  # of which the waiting jobs are shown


@click.command("status")
@common
def command(call: Call) -> int:
    """Show the number of jobs by status, stored artifacts, items that are still missing, and hosts that jobs wait for."""
    from longshore.ledger.queries.history import failures_left
    from longshore.ledger.queries.throughput import held_totals

    with call.ledger() as ledger:
        jobs = {status.value: count for status, count in ledger.counts(call.scope).items()}
        totals = ledger.read(held_totals, call.scope)
        missing = ledger.read(failures_left, call.scope)
        waiting = _waiting(call, ledger) if jobs["pending"] else []
        abandoned = _abandoned(call, ledger) if jobs["processing"] else 0
    held = {
        "artifacts": totals.get("artifacts", 0),
        "bytes": totals.get("artifact_bytes", 0),
        "saved_bytes": max(0, totals.get("artifact_bytes", 0) - totals.get("blob_bytes", 0)),
        "missing_artifacts": totals["missing"],
        "missing_bytes": totals["missing_bytes"],
    }
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


def _waiting(call: Call, ledger: Ledger) -> list[dict[str, Any]]:
    """Return which hosts jobs wait for, why and until when; most jobs first."""
    from longshore.depot.derived_settings import hosts_with_profiles
    from longshore.ledger.queries.due_work import waits

    now, limits = ledger.now(), hosts_with_profiles(call.settings)
    return [
        {
            "host": wait.host,
            "reason": wait.reason,
            "until": moment(wait.until) if wait.until is not None else None,
            "jobs": wait.jobs,
        }
        for wait in ledger.read(waits, call.scope, "", limits, HOSTS)
        if wait.host and (wait.until is None or wait.until > now)
    ]
