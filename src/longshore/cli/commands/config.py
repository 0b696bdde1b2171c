"""`longshore config`: every setting, its value and where it comes from."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from longshore.cli.options import Call, common, make_private
from longshore.cli.output.writer import say
from longshore.config import CONFIG_FILE, shown
from longshore.config.load import default_of, keys_of, sections
from longshore.errors import Conflict


@click.command("config")
@click.argument("action", type=click.Choice(["show", "path", "init"]), default="show")
@click.option("--changed", is_flag=True, help="Only settings that differ from their default.")
@common
def command(call: Call, action: str, *, changed: bool) -> int:
    """Show every setting and where it comes from.

    show lists them, path names the file, init writes one with all defaults as comments.
    """
    path = os.path.join(call.settings.depot, CONFIG_FILE)
    if action == "path":
        _tell_path(call, path)
    elif action == "init":
        write_template(path)
        _tell_path(call, path)
    else:
        _show(call, changed=changed)
    return 0


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
