"""`longshore migrate`: bring the ledger's schema up to date."""

from __future__ import annotations

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import say
from longshore.cli.run_command import OK


@click.command("migrate")
@common
def command(call: Call) -> int:
    """Apply pending migrations, each in one transaction. Nothing else ever changes the schema.

    In an empty PostgreSQL database this makes the ledger; `get` and `add` never do.
    """
    from longshore.depot.maintenance.migrate import migrate

    version, applied = migrate(call.settings)
    if call.json:
        call.output.record("summary", {"command": "migrate", "schema_version": version, "applied": applied})
    elif call.verbosity >= 0:
        say(f"schema {version}: {len(applied)} applied" if applied else f"schema {version}: nothing to do")
    return OK
