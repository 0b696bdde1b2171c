"""`longshore status`: what there is."""

from __future__ import annotations

import click

from longshore.cli.options import Call, common


@click.command("status")
@common
def command(call: Call) -> int:
    """Show how many jobs there are of each status, and what is held."""
    with call.depot() as depot:
        jobs = {status.value: count for status, count in depot.ledger.counts(call.scope).items()}
    if call.json:
        call.output.record("status", {"jobs": jobs})
        return 0
    call.output.table(["status", "jobs"], jobs.items())
    return 0
