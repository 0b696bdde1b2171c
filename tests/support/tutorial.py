"""Typing the tutorial in an empty directory, with any installation of the program."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
PORT = "8765"


def steps(text: str) -> list[tuple[str, list[str]]]:
    """Give the commands with the output that the page promises."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def pattern(line: str) -> str:
    return ".*".join(re.escape(piece) for piece in line.split("…"))


def type_tutorial(folder: Path, longshore: str, env: Mapping[str, str]) -> int:
    """Type the page with this command as `longshore`, compare each output, and return the number of commands."""
    port = free_port()
    typed = [
        (command.replace(PORT, port), [line.replace(PORT, port) for line in output])
        for command, output in steps(TUTORIAL.read_text())
    ]
    bin_, home, outputs = folder / "bin", folder / "home", folder / "outputs"
    for directory in (bin_, home, outputs):
        directory.mkdir()
    (bin_ / "longshore").write_text(f'#!/bin/sh\nexec {longshore} "$@"\n')
    (bin_ / "longshore").chmod(0o755)
    # Each line as typed, in one shell; only where its output goes is added, so that `$?` is still the line's before.
    # A line that ends with & stands alone: nothing of it can be captured.
    script = [
        command if command.endswith("&") else f"{{ {command}\n}} >{outputs / str(number)} 2>&1"
        for number, (command, _) in enumerate(typed)
    ]
    subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=home,
        env={**env, "PATH": f"{bin_}:{env['PATH']}", "LONGSHORE_RETRY__BASE_S": "0.05"},
        check=True,
        timeout=240,
        stdin=subprocess.DEVNULL,
    )
    for number, (command, expected) in enumerate(typed):
        if not command.endswith("&"):
            compare(command, expected, (outputs / str(number)).read_text().splitlines())
    return len(typed)


def compare(command: str, expected: list[str], seen: list[str]) -> None:
    """Raise if a command printed something else than the page says."""
    unmatched = [line for line in expected if not any(re.fullmatch(pattern(line), one) for one in seen)]
    if unmatched or len(seen) != len(expected):
        raise AssertionError(f"{command}: expected {unmatched or expected}, got {seen}")
