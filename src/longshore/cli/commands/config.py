"""`longshore config`: every setting, its value and where it comes from."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Final

import click

from longshore.cli.options import Call, common, make_private
from longshore.cli.output.writer import say
from longshore.cli.standard_input import stdin_bytes
from longshore.config import CONFIG_FILE, shown
from longshore.config.load import default_of, find_depot, keys_of, sections
from longshore.errors import Conflict

ACTIONS: Final = ("show", "get", "set", "unset", "path", "init")


@click.command("config")
@click.argument("action", type=click.Choice(ACTIONS), default="show")
@click.argument("name", required=False, metavar="[SECTION.KEY]")
@click.argument("values", nargs=-1, metavar="[VALUE …]")
@click.option("--changed", is_flag=True, help="Only settings that differ from their default.")
@common
def command(call: Call, action: str, name: str | None, values: tuple[str, ...], *, changed: bool) -> int:
    """Show every setting and where it comes from, or change the depot's own.

    \b
    longshore config [show]                  all settings
    longshore config get SECTION.KEY         one value
    longshore config set SECTION.KEY VALUE   remember it in this depot; a list takes several values, - reads stdin
    longshore config unset SECTION.KEY       back to the default
    longshore config path                    name the file
    longshore config init                    write one with all defaults as comments

    A setting of one host is written `hosts.HOST.KEY` or `credentials.HOST.KEY`.
    """
    if (name is not None) != (action in {"get", "set", "unset"}):
        raise click.UsageError(f"`longshore config {action}` {'needs' if name is None else 'takes no'} SECTION.KEY")
    if bool(values) != (action == "set"):
        raise click.UsageError(f"`longshore config {action}` {'takes no' if values else 'needs a'} value")
    if action in {"set", "unset"}:
        return _change(call, str(name), values)
    path = os.path.join(call.settings.depot, CONFIG_FILE)
    if action == "path":
        _tell_path(call, path)
    elif action == "init":
        write_template(path)
        _tell_path(call, path)
    elif action == "get":
        _get(call, str(name))
    else:
        _show(call, changed=changed)
    return 0


def _change(call: Call, dotted: str, values: Sequence[str]) -> int:
    """Set or unset one setting in the depot's file. Does not load the settings first: it may be what repairs them."""
    from longshore.config.edit_file import key_of, parse_name, set_value, unset_value, value_of

    path = os.path.join(find_depot(call.flags.get("depot"))[0], CONFIG_FILE)
    name = parse_name(dotted)
    if values:
        if key_of(name) and list(values) == ["-"]:
            values = [stdin_bytes().read().decode().removesuffix("\n")]
        value = value_of(name, values)
        make_private(os.path.dirname(path))
        set_value(path, name, value)
    else:
        unset_value(path, name)
    if not values and not call.json and call.verbosity >= 0:
        say(f"{dotted} is no longer set in {path}")
    elif call.json or call.verbosity >= 0:
        _tell_set(call, dotted, path)
    return 0


def _tell_set(call: Call, dotted: str, path: str) -> None:
    value, origin = _one(call, dotted) if dotted.count(".") < 2 else (None, path)
    if call.json:
        call.output.record("config", {"settings": [{"name": dotted, "value": value, "origin": origin}]})
    elif origin not in (path, "default"):
        say(f"written to {path}, but {origin} takes precedence: {_written(value)}")
    else:
        say(f"written to {path}")


def _get(call: Call, dotted: str) -> None:
    value, origin = _one(call, dotted)
    if call.json:
        call.output.record("config", {"settings": [{"name": dotted, "value": value, "origin": origin}]})
    else:
        call.output.text(value if isinstance(value, str) else _written(value))


def _one(call: Call, dotted: str) -> tuple[Any, str]:
    """Return a setting's value without secrets, and where it comes from."""
    from longshore.config.edit_file import key_of, parse_name

    name = parse_name(dotted)
    key_of(name)
    if len(name) == 3:
        table = next(value for known, value, _ in shown(call.settings) if known == f"{name[0]}.named")
        origin = call.settings.origins.get(f"{name[0]}.named", "default")
        return table.get(name[1], {}).get(name[2]), origin
    return next((value, origin) for known, value, origin in shown(call.settings) if known == dotted)


def _show(call: Call, *, changed: bool) -> None:
    rows = [row for row in shown(call.settings) if not changed or row[2] != "default"]
    if call.json:
        settings = [{"name": name, "value": value, "origin": origin} for name, value, origin in rows]
        call.output.record("config", {"settings": settings})
        return
    call.output.table(["setting", "value", "from"], [(name, _written(value), origin) for name, value, origin in rows])


def _tell_path(call: Call, path: str) -> None:
    if call.json:
        call.output.record("config_path", {"path": path, "exists": os.path.exists(path)})
    else:
        call.output.text(path)


def _written(value: Any) -> str:
    """Format a value roughly as TOML, for display."""
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def write_template(path: str) -> None:
    """Write a configuration file with every setting commented out; never overwrite an existing file."""
    make_private(os.path.dirname(path))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} exists", hint="edit it, or move it away") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(template())
    say("written; every line is a comment until you change it")


def template() -> str:
    """Return a `longshore.toml` with every key, its description and its default, all as comments."""
    lines = ["# Longshore. Precedence: flag, environment (LONGSHORE_SECTION__KEY), this file, default.", ""]
    for section in ["", *sections()]:
        if section:
            lines += ["", f"[{section}]"]
        for name, field in keys_of(section).items():
            if name in {"depot", "named"}:
                continue
            lines += [f"# {field.doc}", f"# {name} = {_toml(default_of(field))}"]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{}"
    return '""' if value is None else json.dumps(value)
