"""The README's Python block is correct: for a type checker, and with a file that fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.origin import Origin, Thing, status

README = Path(__file__).parents[2] / "README.md"


def block() -> str:
    (found,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_block_passes_a_strict_type_checker(tmp_path: Path) -> None:
    (tmp_path / "readme.py").write_text(block())
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "readme.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("fails", [False, True])
def test_the_block_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, fails: bool
) -> None:
    with Origin() as origin:
        url = origin.add("/a.pdf", status(404) if fails else Thing(b"%PDF-1.7 a"))
        origin.add("/b.pdf", Thing(b"%PDF-1.7 b"))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("LONGSHORE_NETWORK__ALLOW", '["127.0.0.0/8"]')
        exec(block().replace("https://example.org", url.removesuffix("/a.pdf")), {})
    assert ("http_404" if fails else "depot/store") in capsys.readouterr().out
