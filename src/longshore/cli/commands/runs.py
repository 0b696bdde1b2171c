"""`longshore runs`: list runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import moment, one_line, short_moment, size

if TYPE_CHECKING:
    from longshore.ledger.queries.runs import Run

PAGE: Final = 100


@click.command("runs")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N runs [default: all].")
@common
def command(call: Call, limit: int | None) -> int:
    """List runs, newest first: begin, end, jobs by status, bytes of their results, name.

    A run is a name that jobs share: `--run NAME` of `add` and `get`, or `run_id` in a list. Jobs that were known before
    keep their run.
    """
    from longshore.ledger.queries.runs import runs

    after, left = None, limit
    with call.ledger() as ledger:
        while left is None or left > 0:
            page = ledger.read(runs, call.scope, after=after, limit=min(PAGE, left or PAGE))
            for one in page.items:
                _tell(call, one)
            after = page.next
            if after is None:
                break
            left = None if left is None else left - len(page.items)
    return 0


def _tell(call: Call, run: Run) -> None:
    if call.json:
        call.output.record("run", run_facts(run), flush=False)
        return
    ended = short_moment(run.ended_at) if run.ended_at is not None else "…"
    counts = ", ".join(f"{n} {status.value}" for status, n in run.jobs.items() if n)
    begun = short_moment(run.begun_at)
    call.output.text(f"{begun}  {ended:<{len(begun)}}  {size(run.bytes):>9}  {one_line(run.run_id)}  {counts}")


def run_facts(run: Run) -> dict[str, Any]:
    """Return the fields of a run's line."""
    return {
        "run_id": run.run_id,
        "jobs": {status.value: count for status, count in run.jobs.items()},
        "missing": run.missing,
        "artifacts": run.artifacts,
        "bytes": run.bytes,
        "begun_at": moment(run.begun_at),
        "ended_at": moment(run.ended_at) if run.ended_at is not None else None,
    }
