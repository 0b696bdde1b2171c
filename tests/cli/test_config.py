"""`longshore config get|set|unset`: the depot remembers its settings."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Box


def test_a_commented_default_is_where_the_setting_goes(box: Box) -> None:
    box("config", "init").ok()
    box("config", "set", "transfer.segments", "4").ok()
    lines = (box.depot / "longshore.toml").read_text().splitlines()
    assert lines[lines.index("segments = 4") - 1] == "# segments = 1"
    assert box("config", "get", "transfer.segments").ok().stdout == "4\n"


def test_the_command_tells_where_and_what_wins(box: Box) -> None:
    ran = box("config", "set", "retry.base_s", "7").ok()
    assert "but LONGSHORE_RETRY__BASE_S takes precedence: 0.01" in ran.stderr
    (line,) = box("config", "get", "retry.base_s", "--json").ok().lines
    assert line["settings"][0]["value"] == 0.01
    box("config", "unset", "retry.base_s").ok()
    assert box("config", "unset", "retry.base_s").code == 1


def test_a_secret_comes_from_stdin_and_is_not_shown(box: Box) -> None:
    ran = box("config", "set", "credentials.a.example.password", "-", stdin=b"hush hush\n").ok()
    assert 'password = "hush hush"' in (box.depot / "longshore.toml").read_text()
    shown = box("config", "get", "credentials.a.example.password", "--json").ok()
    assert "hush" not in ran.stdout + ran.stderr + shown.stdout


def test_a_broken_file_can_be_repaired(box: Box) -> None:
    box.depot.mkdir()
    (box.depot / "longshore.toml").write_text("[network]\nalow = []\n")
    assert box("status").code == 2
    box("config", "unset", "network.alow").ok()
    assert box("config").code == 0


@pytest.mark.parametrize(
    "arguments", [["set"], ["set", "tenant"], ["get"], ["unset"], ["show", "tenant"], ["get", "tenant", "x"]]
)
def test_usage(box: Box, arguments: list[str]) -> None:
    assert box("config", *arguments).code == 2
