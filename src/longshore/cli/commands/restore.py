"""`longshore restore`: restore a backup."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from longshore.cli.audited import note
from longshore.cli.commands.backup import tell_copied, telling
from longshore.cli.commands.verify import tell_report
from longshore.cli.options import Call, common
from longshore.cli.output.writer import say
from longshore.cli.run_command import DAMAGE, OK
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.config import Settings


@click.command("restore")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--keep-tokens", is_flag=True, help="Leave the API tokens of the backup valid [default: revoke them].")
@click.option("--allow-drift", is_flag=True, help="Restore a ledger whose schema was changed by hand (it is named).")
@common
def command(call: Call, source: Path, keep_tokens: bool, allow_drift: bool) -> int:
    """Restore the backup at SOURCE into a new depot (--depot), then reconcile it. Exit 5 when bytes are missing."""
    from longshore.depot.maintenance.backup import restore

    _check_places(call.settings)
    copied = restore(
        source,
        Path(call.settings.depot),
        call.settings,
        now=time.time_ns() // 1_000,
        keep_tokens=keep_tokens,
        allow_drift=allow_drift,
        note=telling(call),
    )
    tell_copied(call, "restore", copied)
    for line in copied.drift:
        say(f"warning: the schema of the ledger was changed by hand: {line}")
    if copied.revoked and call.verbosity >= 0:
        say(f"{copied.revoked} tokens of the backup were revoked; make new ones, or restore with --keep-tokens")
    with call.depot() as depot:
        note(depot.ledger, call.scope, "restore", {"tokens_revoked": copied.revoked, "drift": len(copied.drift)})
        report = depot.reconcile(store_lost=True)  # blobs that the backup lacks are lost, even if that is all of them
    tell_report(call, "reconcile", report)
    return DAMAGE if report.damage else OK


def _check_places(settings: Settings) -> None:
    """Reject an external ledger or store: the backup is restored into the depot, and these would be read instead."""
    from longshore.depot.derived_settings import ledger_place, store_place
    from longshore.depot.maintenance.backup import LEDGER, STORE

    for given, name in ((ledger_place(settings), LEDGER), (store_place(settings), STORE)):
        if os.path.abspath(given) != os.path.abspath(os.path.join(settings.depot, name)):
            raise BadInput(
                f"restore makes a depot with its {name} inside, and {given} is configured",
                hint="restore without --ledger and --store, then copy with `longshore ledger copy` and `store copy`",
            )
