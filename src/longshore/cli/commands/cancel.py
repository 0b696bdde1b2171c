"""`longshore cancel`: stop jobs for good."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from longshore.cli.audited import act, of_jobs
from longshore.cli.filters import filtered, is_empty, matching, taken
from longshore.cli.job_ids import full_ids
from longshore.cli.options import Call, common
from longshore.cli.output.writer import say
from longshore.errors import NotFound

if TYPE_CHECKING:
    from longshore.ledger.records import CancelResult

BATCH = 1_000


@click.command("cancel")
@click.argument("ids", nargs=-1, metavar="JOB …")
@click.option("--all", "all_", is_flag=True, help="All waiting and running jobs.")
@click.option("--dry-run", is_flag=True, help="Say which.")
@filtered
@common
def command(call: Call, ids: tuple[str, ...], *, all_: bool, dry_run: bool, **given: Any) -> int:
    """Cancel waiting and running jobs, by id or by filter. Finished jobs stay as they are."""
    chosen = taken(given)
    if bool(ids) == (all_ or not is_empty(chosen)):
        raise click.UsageError("Name jobs, or a filter such as --reason or --host, or --all.")
    if not chosen["statuses"]:
        chosen["statuses"] = ("pending", "processing")
    from longshore.ledger.operations.cancel_retry import cancel

    counts = {"canceled": 0, "requested": 0, "unchanged": 0}
    missing: list[str] = []
    with call.ledger() as ledger:
        wanted = full_ids(ledger, call.scope, ids) or matching(ledger, call.scope, chosen)
        for start in range(0, len(wanted), BATCH):
            batch = wanted[start : start + BATCH]
            if dry_run:
                _tell(call, "canceled", batch)
                counts["canceled"] += len(batch)
                continue
            result = act(ledger, call.scope, "cancel", cancel, call.scope, batch, note=partial(_noted, batch))
            missing += result.missing
            for name in counts:
                _tell(call, name, getattr(result, name))
                counts[name] += len(getattr(result, name))
    if call.json:
        call.output.record("summary", {**counts, "dry_run": dry_run})
    elif call.verbosity >= 0:
        say("{canceled} canceled, {requested} asked to stop, {unchanged} over before".format(**counts))
    if missing:
        raise NotFound(f"no such job: {missing[0]}" + (f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""))
    return 0


def _noted(batch: list[str], done: CancelResult) -> dict[str, Any]:
    return {"count": len(done.canceled) + len(done.requested), **of_jobs(batch)}


def _tell(call: Call, what: str, job_ids: Any) -> None:
    for job_id in job_ids:
        if call.json:
            call.output.record("cancel", {"job_id": job_id, "outcome": what}, flush=False)
        elif call.verbosity > 0:
            call.output.text(f"{what:<10} {job_id}")
