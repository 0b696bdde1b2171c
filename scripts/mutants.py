"""`make mutants`: reintroduce known defects, one at a time, and show that the tests detect each of them.

A mutant is an entry of tests/mutants/*.toml:

    [[mutant]]
    name = "D38"                       # the known defect it reintroduces
    why = "a zombie's write is accepted"
    file = "src/longshore/ledger/sql/leasing.sql"
    old = "AND lease_epoch = :epoch"   # must occur; every occurrence is replaced
    new = ""
    tests = ["tests/ledger/test_leases.py::test_a_zombie_changes_nothing"]

Each runs on a copy of the tree. A surviving mutant means a missing test; one whose text is not found is stale.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect and the tests that must detect it."""

    name: str
    why: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def read_mutants() -> list[Mutant]:
    """Read every entry of tests/mutants/*.toml."""
    paths = sorted((ROOT / "tests" / "mutants").glob("*.toml"))
    entries = (entry for path in paths for entry in tomllib.loads(path.read_text())["mutant"])
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def is_stale(mutant: Mutant) -> bool:
    """Return whether the text that the mutant changes is missing from its file."""
    path = ROOT / mutant.file
    return not path.exists() or mutant.old not in path.read_text()


def try_mutant(mutant: Mutant) -> str:
    """Run the mutant's tests on a changed copy: killed, SURVIVED, STALE or BROKEN (its tests fail without it)."""
    if is_stale(mutant):
        return "STALE"
    with tempfile.TemporaryDirectory(prefix="longshore-mutant-") as home:
        tree = Path(home, "tree")
        shutil.copytree(ROOT, tree, ignore=_left_out)
        if _tests_pass(tree, mutant) is False:
            return "BROKEN"
        target = tree / mutant.file
        target.write_text(target.read_text().replace(mutant.old, mutant.new))
        return "SURVIVED" if _tests_pass(tree, mutant) else "killed"


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Return the names that a copy does not need: `bench/results`, but not `cli/results`."""
    found = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".mypy_cache")(folder, names)
    return found | ({"results"} if Path(folder).name == "bench" else set())


def _tests_pass(tree: Path, mutant: Mutant) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-m", "", *mutant.tests]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=900, check=False)
    return done.returncode == 0


def main() -> None:
    """Try all mutants, or the named ones, and print the table."""
    parser = argparse.ArgumentParser(description="reintroduce known defects and check that the tests detect them")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    mutants = [mutant for mutant in read_mutants() if not given.names or mutant.name in given.names]
    with ThreadPoolExecutor(given.jobs) as pool:
        verdicts = []
        for mutant, verdict in zip(mutants, pool.map(try_mutant, mutants), strict=True):
            print(f"{mutant.name:6} {verdict:9} {mutant.why}", flush=True)
            verdicts.append(verdict)
    killed = verdicts.count("killed")
    print(f"{killed} of {len(verdicts)} killed")
    sys.exit(killed != len(verdicts))


if __name__ == "__main__":
    main()
