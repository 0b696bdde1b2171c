"""`longshore reconcile`: compare rows, files, parts and intents in both directions."""

from __future__ import annotations

import click

from longshore.cli.commands.verify import tell_report
from longshore.cli.options import Call, common
from longshore.cli.run_command import DAMAGE, OK


@click.command("reconcile")
@click.option("--dry-run", is_flag=True, help="Report findings; repair nothing.")
@click.option(
    "--store-lost", is_flag=True, help="The store is lost: mark all artifacts, and fetch again where possible."
)
@common
def command(call: Call, *, dry_run: bool, store_lost: bool) -> int:
    """Compare rows with files, parts with jobs, intents with both; repair where possible. Exit 5 when damage remains.

    A missing or empty store is assumed to be unmounted if the ledger has artifacts: nothing is changed until the store
    is back, or until --store-lost confirms that it is lost.
    """
    if dry_run and store_lost:
        raise click.UsageError("--store-lost starts a new store; it cannot be combined with --dry-run")
    with call.depot(store_lost=store_lost) as depot:
        report = depot.reconcile(dry_run=dry_run, store_lost=store_lost)
    tell_report(call, "reconcile", report, dry_run=dry_run)
    return DAMAGE if report.damage else OK
