"""`longshore restore`: bring a backup back."""

from __future__ import annotations

from pathlib import Path

import click

from longshore.cli.backup import tell_copied, telling
from longshore.cli.options import Call, common
from longshore.cli.program import DAMAGE, OK
from longshore.cli.verify import tell_report


@click.command("restore")
@click.argument("source", type=click.Path(path_type=Path))
@common
def command(call: Call, source: Path) -> int:
    """Bring the backup at SOURCE into a new depot (--depot), then compare rows and files. Exit 5 when bytes are missing."""
    from longshore.depot.backing import restore
    from longshore.depot.wiring import store_settings

    copied = restore(source, Path(call.settings.depot), store_settings(call.settings), note=telling(call))
    tell_copied(call, "restore", copied)
    with call.depot() as depot:
        report = depot.reconcile()
    tell_report(call, "reconcile", report)
    return DAMAGE if report.damage else OK
