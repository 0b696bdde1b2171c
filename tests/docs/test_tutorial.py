"""The tutorial, typed by a test in an empty directory, ends where it says."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.program import environment

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


def test_the_tutorial_ends_where_it_says(tmp_path: Path) -> None:
    port = free_port()
    typed = [
        (command.replace(PORT, port), [line.replace(PORT, port) for line in output])
        for command, output in steps(TUTORIAL.read_text())
    ]
    bin_, home, outputs = tmp_path / "bin", tmp_path / "home", tmp_path / "outputs"
    for directory in (bin_, home, outputs):
        directory.mkdir()
    (bin_ / "longshore").write_text(f'#!/bin/sh\nexec {sys.executable} -m longshore "$@"\n')
    (bin_ / "longshore").chmod(0o755)
    # Each line as typed, in one shell; only where its output goes is added, so that `$?` is still the line's before.
    # A line that ends with & stands alone: nothing of it can be captured.
    script = [
        command if command.endswith("&") else f"{{ {command}\n}} >{outputs / str(number)} 2>&1"
        for number, (command, _) in enumerate(typed)
    ]
    env = environment({"LONGSHORE_RETRY__BASE_S": "0.05"})
    env["PATH"] = f"{bin_}:{env['PATH']}"
    subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=home, env=env, check=True, timeout=240, stdin=subprocess.DEVNULL
    )

    assert len(typed) > 20
    for number, (command, expected) in enumerate(typed):
        if command.endswith("&"):
            continue
        seen = (outputs / str(number)).read_text().splitlines()
        assert len(seen) == len(expected), (command, seen)
        unmatched = [line for line in expected if not any(re.fullmatch(pattern(line), one) for one in seen)]
        assert not unmatched, (command, unmatched, seen)
