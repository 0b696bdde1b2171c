"""The pages about proof name tests that exist, and show what was run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from longshore.checker.check import SENTENCES
from longshore.checker.connections import statements
from scripts.matrix import PAGE, RESULTS, with_matrix
from tests.torture.test_matrix import FAULTS, KEY, ON_POSTGRES
from tests.worker.test_crashes import REACHED

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = ROOT / "docs" / "reference" / "catalogue.md"
NODE = re.compile(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`")
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)


def _missing(text: str) -> list[str]:
    """Name what the text names and what does not exist."""
    missing = []
    for path, name in NODE.findall(text):
        file = ROOT / path
        if not file.exists() or (
            name and not re.search(rf"^(async )?def {name}\(", file.read_text("utf-8"), re.MULTILINE)
        ):
            missing.append(f"{path}::{name}")
    return missing


@pytest.mark.parametrize("page", [PAGE, CATALOGUE], ids=lambda page: page.name)
def test_every_named_test_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(NODE.findall(text)) > 20
    assert _missing(text) == []


def test_the_catalogue_has_every_scenario_once_with_a_test_or_a_reason() -> None:
    rows = ROW.findall(CATALOGUE.read_text("utf-8"))
    assert [int(number) for number, _, _ in rows] == list(range(1, 119))
    for number, _, where in rows:
        assert "`tests/" in where or "`make " in where or where.startswith("Not played: "), number


def test_every_invariant_is_on_the_page_with_what_watches_it() -> None:
    rows = re.findall(r"^\| (I\d+) \| (.+?) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert [name for name, _, _ in rows] == [f"I{number}" for number in range(1, 21)]
    known = {statement.name for statement in statements()} | set(SENTENCES)
    named = {word for _, _, watched in rows for word in re.findall(r"\*(\w+)\*", watched)}
    assert named == known, "every finding of the witness stands for an invariant, and none is invented"


def test_the_matrix_is_what_the_last_run_saw() -> None:
    page = PAGE.read_text("utf-8")
    assert with_matrix(page, json.loads(RESULTS.read_text("utf-8"))) == page


def test_the_matrix_has_every_step_and_every_fault() -> None:
    """Every fault at the steps that matter most (the kill at all others is in `make test`); nothing invented."""
    cells = set(json.loads(RESULTS.read_text("utf-8"))["cells"])
    known = {f"SQLite | {fault} | {step}" for fault in FAULTS for step in REACHED}
    known |= {f"PostgreSQL | {fault} | {step}" for fault in ON_POSTGRES for step in REACHED}
    wanted = {f"SQLite | {fault} | {step}" for fault in FAULTS for step in KEY}
    wanted |= {f"PostgreSQL | {fault} | {step}" for fault in ON_POSTGRES for step in KEY}
    assert wanted <= cells <= known
