"""`longshore migrate`: bring the ledger's schema up to date."""

from __future__ import annotations

import click

from longshore.cli.options import Call, common
from longshore.cli.output import say
from longshore.cli.program import OK


@click.command("migrate")
@click.option("--dry-run", is_flag=True, help="Say what is pending; change nothing.")
@common
def command(call: Call, *, dry_run: bool) -> int:
    """Apply pending migrations, each in one transaction. Nothing else ever changes the schema."""
    from longshore.depot.migrating import migrate

    had, has, pending = migrate(call.settings, dry_run=dry_run)
    if call.json:
        facts = {"command": "migrate", "had": had, "has": has, "pending": pending, "dry_run": dry_run}
        call.output.record("summary", facts)
    elif call.verbosity >= 0:
        say(f"schema {had}: {len(pending)} pending" if dry_run else f"schema {had} → {has}")
    return OK
