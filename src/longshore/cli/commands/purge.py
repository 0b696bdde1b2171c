"""`longshore purge`: archive and delete old jobs."""

from __future__ import annotations

from pathlib import Path

import click

from longshore.cli.audited import note
from longshore.cli.options import Call, common
from longshore.cli.output.writer import counted, moment, say
from longshore.cli.run_command import OK
from longshore.cli.time_spans import MOST_DAYS, TimeRange


@click.command("purge")
@click.option(
    "--older-than",
    "days",
    type=TimeRange(min=0, max=MOST_DAYS),
    default=None,
    metavar="DAYS",
    help="[default: retention.days, 90]",
)
@click.option("--archive", type=click.Path(path_type=Path), metavar="DIR", help="[default: archive/ in the depot]")
@click.option(
    "--format", "format_", type=click.Choice(["parquet", "csv", "jsonl"]), default="parquet", show_default=True
)
@click.option("--dry-run", is_flag=True, help="Show how many; archive and delete nothing.")
@common
def command(call: Call, days: float | None, archive: Path | None, format_: str, *, dry_run: bool) -> int:
    """Archive jobs that ended more than DAYS ago, then delete them. A tombstone keeps the result of each key.

    Jobs referenced by an artifact, an asset or a remaining job stay; a job and its retries are deleted together.
    Unfinished jobs are never touched.
    """
    from longshore.depot.maintenance.purge import retire
    from longshore.depot.maintenance.retention import ARCHIVE
    from longshore.depot.output_paths import check_outside_store

    if archive is not None:
        check_outside_store(str(archive), call.settings)
    with call.ledger() as ledger:
        age = days if days is not None else call.settings.retention.days or 90.0
        before = ledger.now() - int(age * 86_400_000_000)
        target = archive or Path(call.settings.depot, ARCHIVE)
        if not dry_run:
            note(ledger, call.scope, "purge", {"before": moment(before)})
        done = retire(ledger, call.scope, before=before, target=target, form=format_, dry_run=dry_run)
    if call.json:
        facts = {
            "command": "purge",
            "items": done.jobs,
            "files": [str(path) for path in done.files],
            "dry_run": dry_run,
        }
        call.output.record("summary", facts)
    elif call.verbosity >= 0:
        say(
            f"{counted(done.jobs, 'job')} would go"
            if dry_run
            else f"{counted(done.jobs, 'job')} archived to {target} and forgotten"
        )
    return OK
