"""`longshore gc`: remove blobs that nothing refers to."""

from __future__ import annotations

import click

from longshore.cli.audited import note
from longshore.cli.options import Call, common
from longshore.cli.output.writer import say, size
from longshore.cli.run_command import OK, SOME_FAILED
from longshore.cli.time_spans import MOST_DAYS, TimeRange


@click.command("gc")
@click.option(
    "--grace", "grace_h", type=TimeRange(min=0, max=MOST_DAYS * 24), default=168.0, show_default=True, metavar="HOURS"
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed and why; remove nothing.")
@common
def command(call: Call, grace_h: float, *, dry_run: bool) -> int:
    """Quarantine unreferenced blobs, and remove blobs that were in quarantine longer than the grace period.

    An item that cannot be moved or removed is reported, and the next one follows (exit 3).
    """
    with call.depot() as depot:
        if not dry_run:
            note(depot.ledger, call.scope, "gc", {"grace_h": grace_h})
        found = depot.gc(grace_s=grace_h * 3600, dry_run=dry_run)
    for item in found.items:
        facts = {"sha256": item.sha256, "size_bytes": item.size_bytes, "action": item.action, "why": item.why}
        if call.json:
            call.output.record("collected", facts, flush=False)
        else:
            call.output.text(f"{item.action}  {item.sha256}  {size(item.size_bytes):>9}  {item.why}")
    if call.json:
        call.output.record(
            "summary", {"command": "gc", "items": len(found.items), "bytes": found.bytes, "dry_run": dry_run}
        )
    elif call.verbosity >= 0:
        say(f"{len(found.items)} found, {size(found.bytes)} {'would be removed' if dry_run else 'removed'}")
    return SOME_FAILED if found.failed else OK
