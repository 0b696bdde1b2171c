"""`longshore retry`: new jobs for failed or canceled ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from longshore.cli.audited import act, of_jobs
from longshore.cli.filters import filtered, is_empty, matching, taken
from longshore.cli.job_ids import full_ids
from longshore.cli.options import Call, common
from longshore.cli.output.writer import say

if TYPE_CHECKING:
    from longshore.domain.model import Planned
    from longshore.ledger import Ledger

BATCH = 1_000


@click.command("retry")
@click.argument("ids", nargs=-1, metavar="JOB …")
@click.option("--all", "all_", is_flag=True, help="All failed jobs.")
@click.option("--dry-run", is_flag=True, help="Say how many (-v: which), and change nothing.")
@filtered
@common
def command(call: Call, ids: tuple[str, ...], *, all_: bool, dry_run: bool, **given: Any) -> int:
    """Make new jobs for failed or canceled ones, by id or by filter; each is linked to the one it repeats.

    A job that waits for its next attempt is tried at once. Prints how many jobs will run; -v or --json also which.
    """
    chosen = taken(given)
    if bool(ids) == (all_ or not is_empty(chosen)):
        raise click.UsageError("Name jobs, or a filter such as --reason or --host, or --all.")
    if not chosen["statuses"]:
        chosen["statuses"] = ("failed",)
    made = 0
    with call.ledger() as ledger:
        wanted = full_ids(ledger, call.scope, ids) or matching(ledger, call.scope, chosen)
        for start in range(0, len(wanted), BATCH):
            batch = wanted[start : start + BATCH]
            again = batch if dry_run else _again(call, ledger, batch)
            made += len(again)
            _tell(call, again)
    if call.json:
        call.output.record("summary", {"retried": made, "dry_run": dry_run})
    elif call.verbosity >= 0:
        say(
            f"{made} {'would be ' if dry_run else ''}planned again"
            + ("" if dry_run else "; `longshore run` works on them")
        )
    return 0


def _again(call: Call, ledger: Ledger, batch: list[str]) -> list[str]:
    from longshore.ledger.operations.cancel_retry import retry

    def noted(planned: list[Planned]) -> dict[str, Any]:
        return {"count": sum(one.created for one in planned), **of_jobs(batch)}

    planned = act(ledger, call.scope, "retry", retry, call.scope, batch, note=noted)
    return [one.job_id for one in planned if one.created]


def _tell(call: Call, job_ids: list[str]) -> None:
    for job_id in job_ids:
        if call.json:
            call.output.record("retried", {"job_id": job_id}, flush=False)
        elif call.verbosity > 0:
            call.output.text(job_id)
