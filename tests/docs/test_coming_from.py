"""Every `longshore` command of the page for users of other programs exists with its options and settings."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from longshore.cli.main import entries
from longshore.cli.run_command import program
from longshore.config.load import keys_of

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "coming-from.md").read_text()
TABLES, MISSING = PAGE.split("## What Longshore does not have")
TYPED = sorted({" ".join(text.split()) for text in re.findall(r"`(longshore [^`]+)`", PAGE)})
PROGRAMS = ("aria2", "wget and wget2", "curl", "img2dataset", "git-annex")


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command, or the member of a group, and the words that follow it."""
    assert words[0] in entries(), f"no command {words[0]}"
    command = program.get_command(click.Context(program), words[0])
    assert command is not None
    if isinstance(command, click.Group):
        return command.commands[words[1]], words[2:]
    return command, words[1:]


def options_of(command: click.Command) -> dict[str, click.Option]:
    found = [one for one in command.params if isinstance(one, click.Option)]
    return {name: one for one in found for name in (*one.opts, *one.secondary_opts)}


def parsed(typed: str) -> list[str]:
    """Parse a command as click does, without running it, and return the settings that it names."""
    command, words = command_of(shlex.split(typed)[1:])
    context = command.make_context("longshore", list(words), resilient_parsing=True)
    known = options_of(command)
    assert [word for word in words if word.startswith("-") and word != "-" and word not in known] == []
    return list(context.params.get("set_") or ())


@pytest.mark.parametrize("typed", TYPED)
def test_a_command_its_options_and_its_settings_exist(typed: str) -> None:
    for setting in parsed(typed):
        section, _, key = setting.partition("=")[0].rpartition(".")
        assert key in keys_of(section), setting


def test_every_program_has_its_table() -> None:
    assert re.findall(r"^## From (.+)$", TABLES, re.MULTILINE) == list(PROGRAMS)
    assert len(TYPED) > 40


def test_what_is_said_to_be_missing_is_missing() -> None:
    """Once `--limit-rate` exists, the page must show it instead."""
    named = set(re.findall(r"`(--[\w-]+)", MISSING))
    ours = {name for command in ("get", "run", "add") for name in options_of(command_of([command])[0])}
    assert named
    assert sorted(named & ours) == []


def test_an_option_that_does_not_exist_is_noticed_and_settings_are_seen() -> None:
    assert parsed("longshore run --set a.b=1 -q --set c.d=2") == ["a.b=1", "c.d=2"]
    with pytest.raises(AssertionError):
        parsed("longshore get URL --no-such-option")
    with pytest.raises(AssertionError):
        parsed("longshore fetch URL")
