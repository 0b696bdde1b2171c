"""The how-to pages work when typed: every `sh` block of a page, in order, in an empty directory.

A `python` block that begins with `# NAME.py` is that file; a `toml` block that names entry points is installed.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.origin import Origin, Thing
from tests.support.program import SOURCES, environment

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


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def save_modules(text: str, home: Path) -> None:
    """Write the files that a page shows, and what installing its package would leave behind."""
    for block in blocks("python", text):
        if named := re.match(r"# (\w+\.py)\n", block):
            (home / named[1]).write_text(block)
    for block in blocks("toml", text):
        project = tomllib.loads(block).get("project", {})
        for group, points in project.get("entry-points", {}).items():
            info = home / f"{project['name']}-{project['version']}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
            lines = [f"{name} = {place}" for name, place in points.items()]
            (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))


@pytest.mark.parametrize("page", TYPED)
def test_a_page_works_when_typed(page: str, origin: Origin, tmp_path: Path) -> None:
    here = origin.url("").rstrip("/")
    text = (PAGES / page).read_text().replace("https://files.example", here)
    bin_, home = tmp_path / "bin", tmp_path / "home"
    for directory in (bin_, home):
        directory.mkdir()
    for name, arguments in {"longshore": "-m longshore ", "python": ""}.items():
        (bin_ / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
        (bin_ / name).chmod(0o755)
    save_modules(text, home)
    script = "set -e\n" + "\n".join(blocks("sh", text))
    extra = {
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{SOURCES}{os.pathsep}{home}",
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
