"""What the program says before it does anything: help, version, usage, configuration, completion."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from longshore import __version__
from longshore.cli.main import COMMANDS, entries, overview
from longshore.cli.run_command import program
from longshore.config import load_settings
from tests.support.program import environment, execute, invoke

PROMISED = (
    "get add run status jobs show failures retry cancel verify reconcile gc purge export torrent serve migrate doctor "
    "token config adopt put backup restore store ledger version completion stats replay budget hosts runs "
    "submit delete backfill feed mcp webhooks"
)
HEAVY = {"click", "rich", "asyncio", "pycurl", "apsw", "pydantic", "fastapi", "psycopg", "pyarrow", "ada_url", "json"}


def installed() -> list[str]:
    return [name for name, entry in entries().items() if importlib.util.find_spec(entry.place.partition(":")[0])]


def test_every_promised_command_is_in_the_table() -> None:
    assert set(PROMISED.split()) == entries().keys()
    assert all(name in overview() for name in entries())
    assert sum(len(group) for group in COMMANDS.values()) == len(entries())


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys, os; sys.argv = ['longshore', '--help']\n"
        "from longshore.cli.main import main\n"
        "try: main()\nexcept SystemExit as end: assert end.code == 0\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=True
    )

    assert done.stdout.startswith("Usage: longshore")
    assert HEAVY.isdisjoint(done.stderr.split())


def test_help_of_a_command_imports_no_engine() -> None:
    program = (
        "import sys; from longshore.cli.run_command import run\n"
        "for name in sys.argv[1:]: run([name, '--help'])\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    names = [name for name in installed() if name not in {"serve", "torrent", "token"}]
    done = subprocess.run(
        [sys.executable, "-c", program, *names], capture_output=True, text=True, env=environment(), check=True
    )

    assert {"rich", "asyncio", "pycurl", "apsw", "pydantic", "fastapi", "psycopg", "pyarrow"}.isdisjoint(
        done.stderr.split()
    )


@pytest.mark.parametrize("name", installed())
def test_every_command_has_help_json_and_the_common_options(name: str) -> None:
    context = click.Context(program)
    command = program.get_command(context, name)
    assert command is not None
    leaves = command.commands.values() if isinstance(command, click.Group) else [command]
    for leaf in leaves:
        options = {option for parameter in leaf.params for option in parameter.opts}
        assert {
            "--json",
            "--depot",
            "--ledger",
            "--store",
            "--tenant",
            "--project",
            "-q",
            "-v",
            "--allow-net",
        } <= options
        assert leaf.help


def test_version_and_help_as_a_process() -> None:
    assert execute("--version").stdout == f"longshore {__version__}\n"
    assert execute("--help").stdout == overview() + "\n"
    nothing = execute()
    assert (nothing.code, nothing.stdout) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], ["nope", "longshore --help"]),
        (["config", "--bogus"], ["--bogus", "longshore config --help"]),
        (["config", "--set", "transfer=1"], ["[transfer] is a section"]),
        (["config", "--set", "nonsense"], ["--set takes SECTION.KEY=VALUE"]),
        (["config", "--set", "transfer.concurrency=zero"], ["flag: transfer.concurrency takes a whole number"]),
        (["config", "--allow-net", "everything"], ["[network]", "everything"]),
        (["completion", "tcsh"], ["tcsh", "bash"]),
    ],
)
def test_wrong_usage_is_told_on_stderr_with_exit_2(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    ran = invoke(*arguments, env={"LONGSHORE_DEPOT": str(tmp_path)})

    assert (ran.code, ran.stdout) == (2, "")
    for word in words:
        assert word in ran.stderr


def test_errors_are_json_for_machines(tmp_path: Path) -> None:
    ran = invoke("config", "--json", "--set", "transfer.x=1", "--depot", tmp_path)

    error = json.loads(ran.stderr)
    assert (ran.code, ran.stdout, error["type"], error["exit_code"]) == (2, "", "error", 2)
    assert "[transfer] x is not a setting" in error["message"]
    assert error["ts"].endswith("Z")


def test_config_shows_values_and_origins_but_no_secret(tmp_path: Path) -> None:
    env = {"LONGSHORE_DEPOT": str(tmp_path), "LONGSHORE_QBITTORRENT__PASSWORD": "hunter2"}

    ran = invoke("config", "--json", "--set", "transfer.concurrency=3", env=env).ok()
    text = invoke("config", env=env).ok().stdout

    settings = {one["name"]: one for one in ran.lines[0]["settings"]}
    assert settings["transfer.concurrency"] == {"name": "transfer.concurrency", "value": 3, "origin": "flag"}
    assert settings["depot"]["origin"] == "LONGSHORE_DEPOT"
    assert settings["lease.ttl_s"] == {"name": "lease.ttl_s", "value": 120.0, "origin": "default"}
    assert "hunter2" not in ran.stdout + text
    assert "qbittorrent.password" in text


def test_config_init_writes_a_file_that_changes_nothing_and_never_overwrites(tmp_path: Path) -> None:
    depot = tmp_path / "new" / "depot"

    path = Path(invoke("config", "init", "--depot", depot).ok().stdout.strip())

    assert path == depot / "longshore.toml"
    assert load_settings(depot, environ={}) == load_settings(depot, environ={"X": ""})
    uncommented = re.sub(r"^# (\w+ = )", r"\1", path.read_text(), flags=re.MULTILINE)
    assert tomllib.loads(uncommented)["transfer"]["concurrency"] == 32
    again = invoke("config", "init", "--depot", depot)
    assert again.code == 1
    assert "exists" in again.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(shell: str) -> None:
    assert "_LONGSHORE_COMPLETE" in invoke("completion", shell).ok().stdout


def test_completion_offers_commands_and_options() -> None:
    def offered(*words: str) -> list[str]:
        env = {"_LONGSHORE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        lines = execute(env=env).stdout.splitlines()
        return [line.partition(",")[2] for line in lines]

    assert {"verify", "version"} <= set(offered("longshore", "ver"))
    assert "--changed" in offered("longshore", "config", "--ch")


def test_a_closed_pipe_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "longshore", "config"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout is not None
    process.stdout.close()
    stderr = process.stderr.read() if process.stderr else b""
    assert process.wait(60) == 141
    assert b"Traceback" not in stderr
