"""The table of the promise: every test and every mutant that it names exists, and no mutant of the promise is left out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from scripts.mutants import read_mutants

ROOT = Path(__file__).parents[2]
TABLE = [line for line in (ROOT / "docs/explanation/promise.md").read_text().splitlines() if line.startswith("| ")][2:]
NAMED = sorted({name for line in TABLE for name in re.findall(r"`(tests/[\w/]+\.py::\w+)`", line)})


def test_every_sentence_has_tests_and_mutants() -> None:
    assert len(TABLE) > 10
    for line in TABLE:
        _, _, _, tests, mutants, _ = (cell.strip() for cell in line.split("|"))
        assert tests and mutants, line[:80]


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    assert function in {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_named_mutant_exists_and_none_of_the_promise_is_left_out() -> None:
    known = {mutant.name for mutant in read_mutants()}
    named = {name.strip() for line in TABLE for name in line.split("|")[4].split(",")}
    assert named <= known
    assert {name for name in known if re.match(r"(P|L)\d|H\d", name)} <= named
