"""`longshore completion`: print a shell's completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from longshore.cli.options import Call, common


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
def command(call: Call, shell: str) -> int:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(longshore completion bash)"
    zsh:   eval "$(longshore completion zsh)"
    fish:  longshore completion fish | source
    """
    from longshore.cli.run_command import program

    maker = get_completion_class(shell)
    assert maker is not None
    script = maker(program, {}, "longshore", "_LONGSHORE_COMPLETE").source()
    if call.json:
        call.output.record("completion", {"shell": shell, "script": script})
    else:
        call.output.text(script)
    return 0
