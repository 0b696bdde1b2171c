"""The how-to pages work when typed: every `sh` block of a page, in order, in an empty directory."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.origin import Origin, Thing
from tests.support.program import environment

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
TYPED = sorted(path.name for path in PAGES.glob("*.md") if "\n```sh\n" in path.read_text())
PDF = b"%PDF-1.7\n" + b"1 0 obj\n" * 50


@pytest.fixture
def origin() -> Origin:
    made = Origin()
    for name in ("one", "two"):
        made.add(f"/{name}.pdf", Thing(PDF + name.encode()))
    for number in range(1, 41):
        made.add(f"/crawl/{number}", Thing(b"page %d" % number))
    return made


@pytest.mark.parametrize("page", TYPED)
def test_a_page_works_when_typed(page: str, origin: Origin, tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    program = tmp_path / "bin" / "longshore"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m longshore "$@"\n')
    program.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    script = "set -e\n" + "\n".join(blocks).replace("https://files.example", origin.url("").rstrip("/"))
    extra = {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "LONGSHORE_NETWORK__ALLOW": '["127.0.0.0/8"]',
        "HOME": str(home),
    }
    with origin:
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=home,
            env=environment(extra),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


def test_there_are_pages_to_type() -> None:
    assert len(TYPED) >= 4
