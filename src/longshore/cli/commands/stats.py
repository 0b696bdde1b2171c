"""`longshore stats`: statistics of all downloads."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli.options import Call, common
from longshore.cli.run_command import OK


@click.command("stats")
@common
def command(call: Call) -> int:
    """Show statistics of all downloads: resumed, succeeded, corrupted, fsync times, speed, reuse, shards."""
    from longshore.exports.read_ledger import lost_entries, manifest_rows
    from longshore.exports.summary import figures

    with call.ledger() as ledger:
        gathered = figures(manifest_rows(ledger, call.scope, job_type="download"))
        damaged = sum(1 for _ in lost_entries(ledger, call.scope))
    facts = gathered.as_dict(damaged)
    if call.json:
        call.output.record("stats", facts)
    else:
        call.output.table(("figure", "value"), [(name, _plain(value)) for name, value in facts.items()])
    return OK


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in value.items()) or "-"
    return "-" if value is None else str(value)
