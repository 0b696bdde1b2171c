"""`longshore reconcile`: rows, files, parts and intents, compared both ways."""

from __future__ import annotations

import click

from longshore.cli.options import Call, common
from longshore.cli.program import DAMAGE, OK
from longshore.cli.verify import tell_report


@click.command("reconcile")
@click.option("--dry-run", is_flag=True, help="Say what is found; heal nothing.")
@common
def command(call: Call, *, dry_run: bool) -> int:
    """Compare rows with files, parts with jobs, intents with both; heal what can be healed. Exit 5 when damage remains."""
    with call.depot() as depot:
        report = depot.reconcile(dry_run=dry_run)
    tell_report(call, "reconcile", report, dry_run=dry_run)
    return DAMAGE if report.damage else OK
