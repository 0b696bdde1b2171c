"""`longshore ledger`: maintenance of the ledger."""

from __future__ import annotations

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import say
from longshore.cli.run_command import OK


@click.group("ledger")
def command() -> None:
    """Maintain the ledger."""


@command.command("copy")
@click.argument("target", metavar="PLACE")
@common
def copy(call: Call, target: str) -> int:
    """Copy the ledger to PLACE, a path or postgresql://…, and compare both by counts and hashes.

    Stop the workers first. It can be interrupted and repeated. Afterwards name PLACE with --ledger, LONGSHORE_LEDGER or
    in longshore.toml.
    """
    from longshore.depot.derived_settings import ledger_place
    from longshore.ledger.maintenance.copy import copy_ledger

    def progress(table: str, rows: int) -> None:
        if not call.json and call.verbosity > 0:
            say(f"{table}: {rows}")

    done = copy_ledger(ledger_place(call.settings), target, progress)
    if call.json:
        call.output.record("summary", {"command": "ledger copy", "items": sum(done.rows.values()), "rows": done.rows})
    elif call.verbosity >= 0:
        say(f"{sum(done.rows.values())} rows in {len(done.rows)} tables copied and compared equal")
    return OK
