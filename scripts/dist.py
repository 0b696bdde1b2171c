"""`make dist`: build sdist and wheel into dist/, and use each as a person would who installed it.

Each is installed into a bare environment outside the tree and types the tutorial there. The wheel with all extras also
serves the dashboard, because templates and static files are read only then.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tests.support.tutorial import type_tutorial

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PACKAGE = ROOT / "src" / "longshore"
TOP = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def package_files() -> set[str]:
    """Return every file of the package, relative to it."""
    paths = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(PACKAGE).as_posix() for path in paths}


def packed_files(archive: Path) -> set[str]:
    """Return the files of the package that a wheel or an sdist contains."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return _below("longshore/", wheel.namelist())
    with tarfile.open(archive) as sdist:
        names = [member.name for member in sdist.getmembers() if member.isfile()]
    return _below(f"{archive.name.removesuffix('.tar.gz')}/src/longshore/", names)


def _below(prefix: str, names: Iterable[str]) -> set[str]:
    return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}


def build() -> tuple[Path, Path]:
    """Build both with the pinned tools, the wheel from the sdist."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="longshore-build-") as folder:
        # From a copy: setuptools would also pack what an old egg-info of the tree lists, declared or not.
        shutil.copytree(ROOT / "src", f"{folder}/src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        for name in TOP:
            shutil.copy(ROOT / name, folder)
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), folder]
        built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        sys.exit(f"dist: the build failed\n{built.stdout}{built.stderr}")
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def uv(*arguments: object) -> None:
    """Run uv, quietly."""
    program = Path(sys.executable).with_name("uv")
    subprocess.run([program, "pip", "install", "--quiet", *map(str, arguments)], check=True, cwd="/")


class Installation:
    """A bare virtual environment with one of the archives."""

    def __init__(self, folder: Path, archive: Path) -> None:
        self.folder, self.archive = folder, archive
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        self.python, self.longshore = folder / "venv/bin/python", folder / "venv/bin/longshore"
        kept = ("HOME", "LANG", "PATH", "TMPDIR")  # nothing that could lead back to the tree
        self.environment = {name: os.environ[name] for name in kept if name in os.environ} | {"NO_COLOR": "1"}
        uv("--python", self.python, archive)

    def check_version(self) -> None:
        """Compare the version, and check that no module comes from the tree."""
        told = json.loads(self._call(self.longshore, "version", "--json"))
        if told["version"] != PROJECT["version"]:
            sys.exit(f"dist: {self.archive.name} says version {told['version']}, pyproject.toml {PROJECT['version']}")
        place = self._call(self.python, "-c", "import longshore; print(longshore.__file__)").strip()
        if not Path(place).is_relative_to(self.folder):
            sys.exit(f"dist: {self.archive.name}: the program was imported from {place}")

    def type_tutorial(self) -> int:
        """Type the tutorial with this installation."""
        home = self.folder / "tutorial"
        home.mkdir()
        return type_tutorial(home, str(self.longshore), self.environment)

    def check_extras(self) -> None:
        """Resolve every extra by itself, then install all and load the dashboard's first page with its static files."""
        for extra in PROJECT["optional-dependencies"]:
            uv("--python", self.python, "--dry-run", f"longshore[{extra}] @ {self.archive.as_uri()}")
        uv("--python", self.python, f"longshore[all] @ {self.archive.as_uri()}")
        self._check_dashboard()

    def _check_dashboard(self) -> None:
        depot = self.folder / "depot"
        self._call(self.longshore, "put", self.archive, "--depot", depot)
        options = ("--port", "0", "--no-workers", "--json", "--depot", str(depot))
        log = self.folder / "serve.log"
        with log.open("wb") as errors:
            server = subprocess.Popen(
                [self.longshore, "serve", *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self.environment,
                cwd=self.folder,
            )
        try:
            first = server.stdout.readline() if server.stdout else b""
            if not first:
                sys.exit(f"dist: `longshore serve` did not start\n{log.read_text()}")
            here = json.loads(first)["url"]
            page = _body(f"{here}/sign-in").decode()
            files = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
            if not files:
                sys.exit("dist: the first page of the dashboard names no static file")
            for path in files:
                _body(here + path)
        finally:
            server.terminate()
            server.wait()

    def _call(self, *command: object) -> str:
        done = subprocess.run(
            [str(word) for word in command], env=self.environment, cwd=self.folder, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"dist: {' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout


def _body(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def main() -> None:
    """Build, compare, install and use."""
    began = time.monotonic()
    archives = build()
    for archive in archives:
        if missing := sorted(package_files() - packed_files(archive)):
            sys.exit(f"dist: {archive.name} lacks {', '.join(missing)}")
        with tempfile.TemporaryDirectory(prefix="longshore-dist-") as folder:
            installed = Installation(Path(folder), archive)
            installed.check_version()
            typed = installed.type_tutorial()
            if archive.suffix == ".whl":
                installed.check_extras()
        said = f"{len(packed_files(archive))} files, {typed} commands of the tutorial"
        print(f"dist/{archive.name}: {said}, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
