"""What is needed to install the program is declared; `make dist` builds, installs and uses it."""

from __future__ import annotations

import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import longshore
from scripts.dist import PACKAGE, PROJECT, ROOT, package_files, packed_files

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_data_file_is_declared_as_package_data() -> None:
    patterns = DECLARED["tool"]["setuptools"]["package-data"]["longshore"]
    declared = {path.relative_to(PACKAGE).as_posix() for pattern in patterns for path in PACKAGE.glob(pattern)}
    data = {name for name in package_files() if not name.endswith(".py")}
    assert {".sql", ".toml", ".json", ".html", ".js", ".css"} <= {Path(name).suffix for name in data}
    assert sorted(data - declared) == []


def test_every_module_is_in_a_package_that_is_found() -> None:
    folders = {Path(name).parent for name in package_files() if name.endswith(".py")}
    assert [str(folder) for folder in sorted(folders) if not (PACKAGE / folder / "__init__.py").exists()] == []


def test_the_metadata_names_one_version_a_license_file_and_types() -> None:
    assert PROJECT["version"] == longshore.__version__
    assert [name for name in PROJECT["license-files"] if not (ROOT / name).is_file()] == []
    assert (PACKAGE / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]


INTERFACES = {"fsspec", "mcp", "langchain", "llama-index", "haystack"}  # each comes with the program that it is for


def test_the_extra_all_has_every_extra_of_the_program_itself() -> None:
    extras = set(PROJECT["optional-dependencies"]) - {"all"} - INTERFACES
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert everything == f"longshore[{','.join(sorted(extras, key=list(PROJECT['optional-dependencies']).index))}]"


def test_the_files_of_a_wheel_and_of_an_sdist_are_read(tmp_path: Path) -> None:
    wheel, sdist = tmp_path / "longshore-1-py3-none-any.whl", tmp_path / "longshore-1.tar.gz"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("longshore/ledger/sql/plan.sql", "")
        file.writestr("longshore-1.dist-info/RECORD", "")
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(ROOT / "LICENSE", "longshore-1/LICENSE")
        archive.add(ROOT / "LICENSE", "longshore-1/src/longshore/py.typed")
    assert (packed_files(wheel), packed_files(sdist)) == ({"ledger/sql/plan.sql"}, {"py.typed"})


@pytest.mark.torture
def test_both_install_and_type_the_tutorial() -> None:
    """Installs packages into two environments: too slow for `make test`."""
    subprocess.run(["make", "dist"], cwd=ROOT, check=True)
