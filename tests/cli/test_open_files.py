"""Few open files are allowed: work goes on with fewer connections, and nothing counts as a failure of a server."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.origin import Origin, Thing, drip, stamped
from tests.support.program import Ran, command, environment

HOSTS = 40


@pytest.fixture
def many() -> Iterator[list[Origin]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Origin(f"127.0.0.{number + 2}")) for number in range(HOSTS)]


def run(limits: str, *arguments: object) -> Ran:
    script = f"{limits} && exec " + " ".join(f"'{word}'" for word in command(*arguments))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment(), timeout=120)
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("limits", ["ulimit -n 64", "ulimit -Sn 64", "ulimit -n 48"])
def test_forty_hosts_with_few_open_files(many: list[Origin], tmp_path: Path, limits: str) -> None:
    urls = [origin.add("/a", Thing(stamped(number + 1, 3000))) for number, origin in enumerate(many)]
    (tmp_path / "list").write_text("\n".join(urls))
    got = run(limits, "get", "--depot", tmp_path / "d", "--allow-net", "127.0.0.0/8", "--json", "-i", tmp_path / "list")
    got.ok()
    assert len(got.of("completed")) == HOSTS
    assert max(line["attempts"] for line in got.of("completed")) == 1, "want of descriptors is not an attempt"
    assert all(origin.count("/a") <= 3 for origin in many)


def test_large_bodies_with_few_open_files(many: list[Origin], tmp_path: Path) -> None:
    body = 600_000  # does not stay in memory: a part has files of its own
    urls = [
        origin.add("/a", drip(Thing(stamped(number + 1, body)), body // 4, 0.01)) for number, origin in enumerate(many)
    ]
    (tmp_path / "list").write_text("\n".join(urls))
    got = run(
        "ulimit -n 64",
        "get",
        "--depot",
        tmp_path / "d",
        "--allow-net",
        "127.0.0.0/8",
        "--json",
        "-i",
        tmp_path / "list",
    )
    got.ok()
    assert len(got.of("completed")) == HOSTS
    assert all(origin.count("/a") <= 4 for origin in many)
