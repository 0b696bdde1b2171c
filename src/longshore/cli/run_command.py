"""Turn errors into messages and exit codes; every command goes through here."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from importlib import import_module
from typing import Any, Final

import click

from longshore.cli.main import entries, overview
from longshore.cli.options import COMMON
from longshore.cli.output.writer import now
from longshore.errors import LongshoreError, is_want

OK, UNEXPECTED, USAGE, SOME_FAILED, WORK_LEFT, DAMAGE, PERMISSION = 0, 1, 2, 3, 4, 5, 6
INTERRUPTED, TERMINATED, PIPE_CLOSED = 130, 143, 141
BY_SIGNAL: Final = {"SIGINT": INTERRUPTED, "SIGTERM": TERMINATED}
_DISK: Final = {
    errno.ENOSPC: "make room; nothing that was accepted is lost",
    errno.EDQUOT: "make room; nothing that was accepted is lost",
    errno.EROFS: "the file system is read-only: mount it for writing, or name another place with --depot",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EIO: "check the disk and the kernel's log",
}


class Commands(click.Group):
    """The click group; a command's module is imported when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, for completion."""
        return list(entries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one."""
        entry = entries().get(cmd_name)
        if entry is None:
            _suggest(cmd_name)
            return None
        if ctx.resilient_parsing and not ctx.protected_args:
            return click.Command(cmd_name, short_help=entry.does)
        module, _, attribute = entry.place.partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except ModuleNotFoundError as missing:
            raise _without_module(cmd_name, module, missing) from None
        assert isinstance(found, click.Command)
        return found

    def get_help(self, ctx: click.Context) -> str:
        """Return the text of `longshore --help`."""
        return overview()


def _suggest(name: str) -> None:
    """Resolve a command; suggest similar names for an unknown one."""
    from difflib import get_close_matches

    if close := get_close_matches(name, entries(), n=2):
        raise click.UsageError(f"No such command {name!r}. Did you mean {' or '.join(map(repr, close))}?")


def _without_module(name: str, module: str, missing: ModuleNotFoundError) -> click.ClickException:
    if missing.name == module:
        return click.UsageError(f"{name} is not part of this installation")
    return click.UsageError(f"{name} needs the package {missing.name}: pip install 'longshore[all]'")


@click.pass_context
def _remember(context: click.Context, /, **given: Any) -> None:
    """Keep the common options that come before the command; `common` adds them to the command's own."""
    context.obj = given


for _option in reversed(COMMON):
    _remember = _option(_remember)
program = click.command("longshore", cls=Commands)(_remember)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    as_json = "--json" in arguments
    try:
        code = _call(arguments)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        return _usage(error, as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe; keep the interpreter from reporting that at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except LongshoreError as error:
        return complain(str(error), error.hint, error.exit_code, as_json=as_json)
    except PermissionError as error:
        return complain(_of_file(error), "check who owns it, or name another place", PERMISSION, as_json=as_json)
    except OSError as error:
        return complain(_of_file(error), _DISK.get(error.errno or 0), UNEXPECTED, as_json=as_json)
    except Exception as error:  # noqa: BLE001 -- the outermost handler: unexpected errors
        if is_want(error):
            message = f"too few resources: {error or 'no memory left'}"
            command = next((word for word in arguments if word in entries()), "")
            code = WORK_LEFT if command in ("get", "run") else UNEXPECTED
            return complain(message, "allow the process more threads or memory", code, as_json=as_json)
        return _unforeseen(error, as_json=as_json)
    return code if isinstance(code, int) else OK


def _call(arguments: list[str]) -> Any:
    if "_LONGSHORE_COMPLETE" in os.environ:
        return program.main(arguments, prog_name="longshore", standalone_mode=False)
    # Not click's `main`: it has its own exit code for a closed pipe.
    with program.make_context("longshore", arguments) as context:
        return program.invoke(context)


def complain(message: str, hint: str | None, code: int, *, as_json: bool) -> int:
    """Print an error and its hint to stderr; return the exit code."""
    if as_json:
        facts: dict[str, Any] = {"type": "error", "schema": 1, "ts": now()}
        facts |= {"message": message, "hint": hint, "exit_code": code}
        print(json.dumps(facts), file=sys.stderr)
        return code
    print(f"longshore: {message}", file=sys.stderr)
    if hint:
        print(f"  → {hint}", file=sys.stderr)
    return code


def _usage(error: click.ClickException, *, as_json: bool) -> int:
    code = USAGE if isinstance(error, click.UsageError | click.FileError) else UNEXPECTED
    context = getattr(error, "ctx", None)
    hint = f"`{context.command_path} --help` shows how" if context else "`longshore --help` shows how"
    return complain(error.format_message(), hint, code, as_json=as_json)


def _of_file(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _unforeseen(error: Exception, *, as_json: bool) -> int:
    if os.environ.get("LONGSHORE_DEBUG"):
        import traceback

        traceback.print_exc(file=sys.stderr)
    message = f"unexpected: {type(error).__name__}: {error}"
    return complain(message, "internal error; LONGSHORE_DEBUG=1 shows the traceback", UNEXPECTED, as_json=as_json)


def code_of_signal(name: str) -> int:
    """Return the exit code of a command that a signal stopped."""
    return BY_SIGNAL.get(name, 128 + getattr(signal, name, signal.SIGTERM))
