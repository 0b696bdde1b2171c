"""`longshore failures`: failed jobs by reason and host."""

from __future__ import annotations

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import say


@click.command("failures")
@common
def command(call: Call) -> int:
    """Show failed jobs by reason and host, with an example and a remedy for each."""
    from longshore.cli.output.failure_lines import LOST_REMEDY, lost_text, remedy
    from longshore.domain.kinds import Status
    from longshore.domain.policy.redaction import LONGEST, safe_url, shortened
    from longshore.ledger.queries.throughput import held_totals

    with call.ledger() as ledger:
        groups = ledger.failures(call.scope)
        totals = ledger.read(held_totals, call.scope)
        failed = ledger.counts(call.scope)[Status.FAILED] if not groups else 0
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
    if totals["missing"] and call.json:
        facts = {"artifacts": totals["missing"], "bytes": totals["missing_bytes"], "remedy": LOST_REMEDY}
        call.output.record("lost", facts)
    elif totals["missing"]:
        call.output.text(lost_text(totals["missing"], totals["missing_bytes"]))
    if not groups and not totals["missing"] and not call.json and call.verbosity >= 0:
        older = f"; {failed} older failures were tried again: `longshore jobs --status failed`" if failed else ""
        say(f"nothing failed{older}")
    return 0
