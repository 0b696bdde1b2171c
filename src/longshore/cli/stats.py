"""`longshore stats`: what all downloads together were like."""

from __future__ import annotations

from typing import Any

import click

from longshore.cli.options import Call, common
from longshore.cli.program import OK


@click.command("stats")
@common
def command(call: Call) -> int:
    """Figures of all downloads: how many resumed and succeeded, corruption, fsync times, speed, reuse, shards."""
    from longshore.exports.figures import figures
    from longshore.exports.source import lost_entries, manifest_rows

    with call.depot() as depot:
        gathered = figures(manifest_rows(depot.ledger, depot.scope, job_type="download"))
        damaged = sum(1 for _ in lost_entries(depot.ledger, depot.scope))
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
