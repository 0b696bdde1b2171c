"""`longshore failures`: failed jobs by reason and host."""

from __future__ import annotations

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import say


@click.command("failures")
@click.option("--run", "run_id", metavar="NAME", help="Only jobs of this run.")
@common
def command(call: Call, run_id: str | None) -> int:
    """Show failed jobs by reason and host, with an example and a remedy for each."""
    from longshore.cli.output.failure_lines import remedy
    from longshore.domain.kinds import Status
    from longshore.domain.policy.redaction import LONGEST, safe_url, shortened
    from longshore.ledger.queries.runs import run

    with call.ledger() as ledger:
        groups = ledger.failures(call.scope, run_id=run_id)
        counts = ledger.counts(call.scope) if run_id is None else ledger.read(run, call.scope, run_id).jobs
        failed = counts[Status.FAILED] if not groups else 0
    for group in groups:
        facts = {
            "reason": group.reason,
            "host": group.host,
            "count": group.count,
            "sample_job_id": group.sample_job_id,
            "sample_url": safe_url(group.sample_url) if group.sample_url else None,
            "message": group.message,
            "remedy": remedy(group.reason or ""),
        }
        if call.json:
            call.output.record("failure", facts, flush=False)
        else:
            call.output.text(f"{facts['count']:>7}  {facts['reason']}  {facts['host'] or '-'}")
            call.output.text(f"         {facts['message']}")
            call.output.text(
                f"         e.g. {facts['sample_job_id']}  {shortened(str(facts['sample_url'] or ''), LONGEST)}"
            )
            call.output.text(f"         → {facts['remedy']}")
    if not groups and not call.json and call.verbosity >= 0:
        older = f"; {failed} older failures were tried again: `longshore jobs --status failed`" if failed else ""
        say(f"nothing failed{older}")
    return 0
