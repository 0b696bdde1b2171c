"""`longshore mcp`: the depot as an MCP server on stdin and stdout."""

from __future__ import annotations

import click

from longshore.cli.options import Call, common
from longshore.cli.run_command import OK


@click.command("mcp")
@click.option("--no-workers", is_flag=True, help="Only serve; `longshore run --forever` runs the jobs elsewhere.")
@common
def command(call: Call, *, no_workers: bool) -> int:
    """Serve the depot to an agent by the Model Context Protocol, on stdin and stdout, and run its jobs beside.

    Tools: fetch, add_list, submit, status, failures, retry. Resources: longshore://artifact/ID. Every answered job id is durable:
    it stays valid when this process is killed, for the next one on the same depot.
    """
    try:
        from longshore.integrations.mcp_server import serve_stdio
    except ImportError as missing:
        raise click.UsageError(str(missing)) from None
    from longshore.depot import AsyncDepot
    from longshore.depot.sync_depot import drive

    call.tell_new()
    with AsyncDepot.open(settings=call.settings) as depot:
        drive(serve_stdio(depot, workers=not no_workers))
    return OK
