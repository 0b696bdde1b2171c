"""`longshore reconcile`: rows, files, parts and intents, compared both ways."""

from __future__ import annotations

import click

from longshore.cli.options import Call, common
from longshore.cli.program import DAMAGE, OK
from longshore.cli.verify import tell_report


@click.command("reconcile")
@click.option("--dry-run", is_flag=True, help="Say what is found; heal nothing.")
@click.option(
    "--store-lost", is_flag=True, help="The store is gone for good: mark everything, fetch again what can be."
)
@common
def command(call: Call, *, dry_run: bool, store_lost: bool) -> int:
    """Compare rows with files, parts with jobs, intents with both; heal what can be healed. Exit 5 when damage remains.

    A store that is not there or holds nothing, while the ledger says otherwise, is taken for one that is not mounted:
    nothing is changed until it is back, or --store-lost says that it will not come back.
    """
    if dry_run and store_lost:
        raise click.UsageError("--store-lost begins a new store: not with --dry-run")
    with call.depot(store_lost=store_lost) as depot:
        report = depot.reconcile(dry_run=dry_run, store_lost=store_lost)
    tell_report(call, "reconcile", report, dry_run=dry_run)
    return DAMAGE if report.damage else OK
