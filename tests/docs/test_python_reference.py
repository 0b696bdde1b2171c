"""What a Python user looks up: help(), signatures, the reference page, and a typed guide."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import longshore
from tests.docs.test_how_to import PAGES, save_modules

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
METHODS = sorted(name for name, one in vars(longshore.Depot).items() if callable(one) and not name.startswith("_"))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_signature_and_says_what_it_does(name: str) -> None:
    method = getattr(longshore.Depot, name)
    assert next(iter(inspect.signature(method).parameters)) == "self"
    assert len(inspect.getdoc(method) or "") > 20
    assert not {"args", "kwargs"} & set(inspect.signature(method).parameters)


def test_the_methods_are_those_of_the_async_core(tmp_path: Path) -> None:
    with longshore.open(tmp_path / "d") as depot:
        core = {name for name in vars(depot.aio) if callable(getattr(depot.aio, name))}
        assert set(METHODS) - {"close"} <= core


def test_the_page_lists_every_field_with_its_type_and_default() -> None:
    text = PAGE.read_text()
    for name in longshore.__all__:
        assert f"`{name}" in text
        kind = getattr(longshore, name)
        if is_dataclass(kind):
            section = text.partition(f"### `{name}`\n")[2].partition("\n##")[0]
            for field in fields(kind):
                assert f"| `{field.name}` | `" in section, (name, field.name)
    assert "mode: 'Literal" not in text
    assert "place(artifact: Artifact, target: str | os.PathLike[str], *, mode: Mode = 'reflink'" in text
    assert '"hardlink" (the file is' in text


def test_the_guide_for_job_types_passes_a_strict_type_checker(tmp_path: Path) -> None:
    save_modules((PAGES / "add-a-job-type.md").read_text(), tmp_path)
    files = [name for name in ("words.py", "count.py", "submit.py") if (tmp_path / name).exists()]
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert len(files) == 3
    assert done.returncode == 0, done.stdout
