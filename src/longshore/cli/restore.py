"""`longshore restore`: bring a backup back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from longshore.cli.backup import tell_copied, telling
from longshore.cli.options import Call, common
from longshore.cli.program import DAMAGE, OK
from longshore.cli.verify import tell_report
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.config import Settings


@click.command("restore")
@click.argument("source", type=click.Path(path_type=Path))
@common
def command(call: Call, source: Path) -> int:
    """Bring the backup at SOURCE into a new depot (--depot), then compare rows and files. Exit 5 when bytes are missing."""
    from longshore.depot.backing import restore
    from longshore.depot.wiring import store_settings

    _check_places(call.settings)
    copied = restore(source, Path(call.settings.depot), store_settings(call.settings), note=telling(call))
    tell_copied(call, "restore", copied)
    with call.depot() as depot:
        report = depot.reconcile(store_lost=True)  # what the backup did not have is not here, were it everything
    tell_report(call, "reconcile", report)
    return DAMAGE if report.damage else OK


def _check_places(settings: Settings) -> None:
    """Refuse a ledger or a store elsewhere: the backup would come into the depot, and they would be looked at."""
    from longshore.depot.backing import LEDGER, STORE
    from longshore.depot.wiring import ledger_place, store_place

    for given, name in ((ledger_place(settings), LEDGER), (store_place(settings), STORE)):
        if os.path.abspath(given) != os.path.abspath(os.path.join(settings.depot, name)):
            raise BadInput(
                f"restore makes a depot with its {name} inside, and {given} is configured",
                hint="restore without --ledger and --store, then copy with `longshore ledger copy` and `store copy`",
            )
