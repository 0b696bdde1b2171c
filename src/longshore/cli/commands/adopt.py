"""`longshore adopt`: register files that are already there."""

from __future__ import annotations

from pathlib import Path

import click

from longshore.cli.commands.put import tell_refused, tell_taken
from longshore.cli.options import Call, common
from longshore.cli.output.writer import say
from longshore.cli.run_command import OK, SOME_FAILED
from longshore.errors import BadInput


@click.command("adopt")
@click.argument("directory", type=click.Path(path_type=Path))
@common
def command(call: Call, directory: Path) -> int:
    """Hash and register every file below DIRECTORY; the files stay where they are.

    A later `add` of a list that names their SHA-256 finds them held and fetches nothing.
    A file that cannot be read, or that changes while it is read, is refused; the others are registered (exit 3).
    """
    from longshore.depot.uploads import plain_files

    new = held = bad = 0
    with call.depot(create=True) as depot:
        for path in plain_files(directory, depot.settings):
            name = str(path.relative_to(directory))
            try:
                got = depot.put(path, name=name, artifact_type="adopted")
            except BadInput as error:
                bad += 1
                tell_refused(call, name, str(error))
                continue
            held, new = held + got.held_before, new + (not got.held_before)
            if call.json or call.verbosity > 0:
                tell_taken(call, got, name)
    if call.json:
        call.output.record("summary", {"command": "adopt", "new": new, "held": held, "refused": bad})
    elif call.verbosity >= 0:
        say(f"{new} taken, {held} held before, {bad} refused")
    return SOME_FAILED if bad else OK
