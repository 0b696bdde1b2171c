"""`longshore status`: counts of jobs and artifacts."""

from __future__ import annotations

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import size


@click.command("status")
@common
def command(call: Call) -> int:
    """Show the number of jobs by status, and the number and size of stored artifacts."""
    from longshore.ledger.queries.throughput import held_totals

    with call.ledger() as ledger:
        jobs = {status.value: count for status, count in ledger.counts(call.scope).items()}
        totals = ledger.read(held_totals, call.scope)
    held = {
        "artifacts": totals.get("artifacts", 0),
        "bytes": totals.get("artifact_bytes", 0),
        "saved_bytes": max(0, totals.get("artifact_bytes", 0) - totals.get("blob_bytes", 0)),
    }
    if call.json:
        call.output.record("status", {"jobs": jobs, "held": held})
        return 0
    call.output.table(["status", "jobs"], jobs.items())
    saved = f", {size(held['saved_bytes'])} of them only once on disk" if held["saved_bytes"] else ""
    call.output.text(f"{held['artifacts']} artifacts, {size(held['bytes'])}{saved}")
    return 0
