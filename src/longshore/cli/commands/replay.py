"""`longshore replay`: run jobs again from their stored inputs."""

from __future__ import annotations

import click

from longshore.cli.job_ids import full_ids
from longshore.cli.options import Call, common
from longshore.cli.output.writer import say


@click.command("replay")
@click.argument("ids", nargs=-1, required=True, metavar="JOB …")
@common
def command(call: Call, ids: tuple[str, ...]) -> int:
    """Run finished jobs again, as new jobs linked to the old ones: inputs come from the store, nothing is uploaded.

    A download is fetched again. Prints the new jobs; `longshore run` runs them.
    """
    with call.depot() as depot:
        for job_id in full_ids(depot.ledger, call.scope, ids):
            planned = depot.replay(job_id)
            if call.json:
                facts = {"job_id": planned.job_id, "retry_of": job_id, "created": planned.created}
                call.output.record("replayed", facts)
            elif call.verbosity >= 0:
                call.output.text(planned.job_id)
    if not call.json and call.verbosity >= 0:
        say("`longshore run` works on them")
    return 0
