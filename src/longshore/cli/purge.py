"""`longshore purge`: archive and forget."""

from __future__ import annotations

from pathlib import Path

import click

from longshore.cli.options import Call, common
from longshore.cli.output import say
from longshore.cli.program import OK


@click.command("purge")
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(min=0),
    default=None,
    metavar="DAYS",
    help="[default: retention.days, 90]",
)
@click.option("--archive", type=click.Path(path_type=Path), metavar="DIR", help="[default: archive/ in the depot]")
@click.option(
    "--format", "format_", type=click.Choice(["parquet", "csv", "jsonl"]), default="parquet", show_default=True
)
@click.option("--dry-run", is_flag=True, help="Say how many; archive and forget nothing.")
@common
def command(call: Call, days: float | None, archive: Path | None, format_: str, *, dry_run: bool) -> int:
    """Archive jobs that were over DAYS ago, then forget them. A tombstone keeps what each key came to.

    Jobs that an artifact, an asset or a job that stays points to stay; a job and its retries go together. Work that has
    not run is never touched.
    """
    from longshore.exports.archive import retire

    with call.depot() as depot:
        age = days if days is not None else depot.settings.retention.days or 90.0
        before = depot.ledger.now() - int(age * 86_400_000_000)
        target = archive or Path(depot.settings.depot, "archive")
        done = retire(depot.ledger, depot.scope, before=before, target=target, form=format_, dry_run=dry_run)
    if call.json:
        facts = {
            "command": "purge",
            "items": done.jobs,
            "files": [str(path) for path in done.files],
            "dry_run": dry_run,
        }
        call.output.record("summary", facts)
    elif call.verbosity >= 0:
        say(f"{done.jobs} jobs would go" if dry_run else f"{done.jobs} jobs archived to {target} and forgotten")
    return OK
