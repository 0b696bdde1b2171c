"""`longshore backfill`: adopt an earlier ledger with its files."""

from __future__ import annotations

from pathlib import Path

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import say
from longshore.cli.run_command import OK, SOME_FAILED


@click.command("backfill")
@click.argument("source", type=click.Path(path_type=Path), metavar="LEDGER")
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory of relative paths [default: that of LEDGER].",
)
@click.option("--dry-run", is_flag=True, help="Hash the files and count; plan and store nothing.")
@common
def command(call: Call, source: Path, root: Path | None, *, dry_run: bool) -> int:
    """Adopt an earlier ledger: a SQLite file with the tables `artifact_jobs` and `artifact_ops`, or a table `downloads`.

    Every row becomes a job under its work, artifact and URL. If the file that a row names has the SHA-256 of the row, the
    file is copied into the store and the job is completed; every other job waits, and `longshore run` fetches it. Running
    it twice changes nothing. Rows that do not describe a download are refused and listed (exit 3).
    """
    with call.depot(create=not dry_run) as depot:
        done = depot.backfill(source, root=root, dry_run=dry_run)
    for refused in done.refused[:20]:
        say(f"refused: {refused}")
    if call.json:
        counts = {"adopted": done.adopted, "planned": done.planned, "known": done.known, "refused": len(done.refused)}
        call.output.record("backfilled", {**counts, "dry_run": dry_run})
    elif call.verbosity >= 0:
        told = f"{done.adopted} adopted, {done.planned} to be fetched, {done.known} known before, {len(done.refused)} refused"
        say(f"would be: {told}" if dry_run else told)
    return SOME_FAILED if done.refused else OK
