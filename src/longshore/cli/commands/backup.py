"""`longshore backup`: ledger and store together, while work goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from longshore.cli.options import Call, LocalPath, common
from longshore.cli.output.writer import counted, say, size
from longshore.cli.run_command import DAMAGE, OK
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.depot.maintenance.backup import BackupResult


@click.command("backup")
@click.argument("target", type=LocalPath(path_type=Path))
@common
def command(call: Call, target: Path) -> int:
    """Copy ledger, blobs and configuration to TARGET, an empty directory or an earlier backup, which gets only new blobs.

    It also works while the ledger still has to be migrated. Only you can read the backup, as with the depot. Exit 5 when blobs are damaged or missing: all others are
    copied.
    """
    from longshore.depot.derived_settings import ledger_place, store_place
    from longshore.depot.maintenance.backup import backup
    from longshore.depot.owned_store import open_store_of_snapshot

    settings = call.settings
    ledger, depot = ledger_place(settings), Path(settings.depot)
    if not isinstance(ledger, Path) and "://" in ledger:
        raise BadInput(
            "backup copies an embedded depot",
            hint="use pg_dump and your object store's own means; see docs/how-to/back-up.md",
        )
    copied = backup(
        Path(ledger),
        lambda snapshot: open_store_of_snapshot(settings, snapshot),
        target,
        now=time.time_ns() // 1_000,
        depot=depot,
        outside=[depot, Path(store_place(settings))],
        note=telling(call),
    )
    tell_copied(call, "backup", copied)
    return DAMAGE if copied.problems else OK


def telling(call: Call) -> Callable[[BackupResult], None]:
    """Report the progress from time to time."""
    due = [time.monotonic() + 5]

    def note(copied: BackupResult) -> None:
        if time.monotonic() >= due[0] and not call.json and call.verbosity >= 0:
            due[0] = time.monotonic() + 5
            say(f"{counted(copied.blobs, 'blob')}, {size(copied.bytes)}")

    return note


def tell_copied(call: Call, name: str, copied: BackupResult) -> None:
    """Report the result of a backup or restore."""
    for sha256, problem in () if call.json else copied.problems:
        call.output.text(f"{problem}  {sha256}")
    facts = {
        "items": copied.blobs,
        "bytes": copied.bytes,
        "there": copied.there,
        "missing": copied.missing,
        "damaged": copied.damaged,
    }
    if call.json:
        call.output.record("summary", {"command": name, **facts})
    elif call.verbosity >= 0:
        missing = f", {copied.damaged} damaged, {copied.missing} missing" if copied.problems else ""
        say(f"{counted(copied.blobs, 'blob')} copied ({size(copied.bytes)}), {copied.there} there before{missing}")
