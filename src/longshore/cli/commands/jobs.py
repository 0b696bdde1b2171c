"""`longshore jobs`: list jobs."""

from __future__ import annotations

from typing import Any, Final

import click

from longshore.cli.filters import filtered, found_jobs, taken
from longshore.cli.options import Call, common
from longshore.cli.output.writer import short_moment

ALL: Final = 1 << 31


@click.command("jobs")
@filtered
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most N jobs [default: all].")
@common
def command(call: Call, limit: int | None, **given: Any) -> int:
    """List jobs: id, status, stage, reason, last change and URL. Lists all jobs unless --limit or a filter is given.

    The reason `lost` marks a completed job whose bytes were found lost or damaged (`availability` with --json).

    Other commands take the last characters of an id (at least 6) instead of all of it.
    """
    from longshore.cli.output.job_fields import job_facts
    from longshore.domain.policy.redaction import LONGEST, shortened
    from longshore.ledger.queries.throughput import lost_results

    chosen = taken(given)
    with call.ledger() as ledger:
        lost = {one.job_id for one in ledger.read(lost_results, call.scope, ALL)}
        for job in found_jobs(ledger, call.scope, chosen, limit):
            facts = job_facts(job, is_lost=job.job_id in lost)
            if call.json:
                call.output.record("job", facts, flush=False)
            else:
                words = (
                    facts["job_id"],
                    facts["status"].ljust(10),
                    facts["stage"].ljust(17),
                    ("lost" if job.job_id in lost else facts["reason"] or "-").ljust(17),
                    short_moment(job.updated_at),
                )
                item = facts["url"] or facts["work_id"] or facts["job_type"]
                call.output.text("  ".join([*words, shortened(item, LONGEST)]))
    return 0
