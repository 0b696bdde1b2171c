"""`longshore submit`: plan a job of a declared type."""

from __future__ import annotations

import json
from typing import Any

import click

from longshore.cli.filters import named_values
from longshore.cli.options import Call, common
from longshore.cli.output.writer import say
from longshore.errors import BadInput


@click.command("submit")
@click.argument("job_type", metavar="TYPE")
@click.option("--input", "inputs", multiple=True, metavar="ARTIFACT", help="Id of an input artifact; repeatable.")
@click.option("--param", "named", multiple=True, metavar="NAME=VALUE", help="A parameter: JSON, or else a text.")
@click.option("--params", "document", metavar="JSON", help="All parameters as one JSON object.")
@click.option("--key", metavar="KEY", help="Key of the job, instead of one derived from inputs and parameters.")
@click.option("--no-key", is_flag=True, help="A new job that runs, even if the same work was done.")
@click.option("--priority", type=int, default=0, help="Jobs with a higher priority run first.")
@common
def command(
    call: Call,
    job_type: str,
    inputs: tuple[str, ...],
    named: tuple[str, ...],
    document: str | None,
    key: str | None,
    no_key: bool,
    priority: int,
) -> int:
    """Plan a job of a type that an installed package declares with `longshore.job_type`.

    The same inputs, parameters and version of the type are the same job, unless --key or --no-key is given. Prints the
    job's id; `longshore run` runs it.
    """
    from longshore.depot.custom_jobs import Key

    if key is not None and no_key:
        raise BadInput("--key and --no-key exclude each other")
    params = {**_document(document), **{name: _value(text) for name, text in named_values(named).items()}}
    chosen = None if no_key else Key.DERIVED if key is None else key
    with call.depot(create=True) as depot:
        planned = depot.submit(job_type, inputs=inputs, params=params, key=chosen, priority=priority)
    if call.json:
        facts = {"job_id": planned.job_id, "created": planned.created, "status": planned.status.value}
        call.output.record("submitted", facts)
    elif call.verbosity >= 0:
        call.output.text(planned.job_id)
        say(
            "`longshore run` works on it"
            if planned.created
            else f"the same work is job {planned.job_id}: {planned.status}"
        )
    return 0


def _document(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadInput(f"--params is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadInput("--params is a JSON object")
    return found


def _value(text: str) -> Any:
    """Return a value that is written as JSON; any other text is itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
