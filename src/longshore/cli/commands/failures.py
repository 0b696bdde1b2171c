"""`longshore failures`: failed jobs by reason and host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import say
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.ledger.queries.history import FailureGroup


@click.command("failures")
@click.option("--reason", metavar="REASON", help="Only failures for this reason.")
@click.option("--run", "run_id", metavar="NAME", help="Only jobs of this run.")
@common
def command(call: Call, reason: str | None, run_id: str | None) -> int:
    """Show failed jobs by reason and, within it, by host, with an example and a remedy for each."""
    from longshore.cli.output.failure_lines import LOST_REMEDY, lost_text, remedy
    from longshore.domain.kinds import Status
    from longshore.domain.policy.redaction import LONGEST, safe_url, shortened
    from longshore.ledger.queries.runs import run
    from longshore.ledger.queries.throughput import held_totals

    with call.ledger() as ledger:
        groups = ledger.failures(call.scope, run_id=run_id)
        totals = ledger.read(held_totals, call.scope)
        counts = ledger.counts(call.scope) if run_id is None else ledger.read(run, call.scope, run_id).jobs
        failed = counts[Status.FAILED] if not groups else 0
    if reason is not None:
        groups = _only(groups, reason)
    for group in _by_reason(groups):
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


def _by_reason(groups: Sequence[FailureGroup]) -> list[FailureGroup]:
    """Put the hosts of one reason together; the most frequent reason and host first."""
    totals: Counter[str] = Counter()
    for group in groups:
        totals[group.reason] += group.count
    return sorted(groups, key=lambda one: (-totals[one.reason], one.reason, -one.count, one.host))


def _only(groups: Sequence[FailureGroup], reason: str) -> list[FailureGroup]:
    """Return the groups of one reason; name those that there are if it is none of them."""
    found = [group for group in groups if group.reason == reason]
    if not found and groups:
        there = ", ".join(sorted({group.reason for group in groups}))
        raise BadInput(f"nothing failed for {reason!r}", hint=f"there are {there}")
    return found
