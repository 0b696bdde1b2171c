"""The list of mutants fits the tree: `make mutants` takes minutes, and a stale entry shows nothing."""

from __future__ import annotations

import re

import pytest

from scripts.mutants import ROOT, Mutant, is_stale, read_mutants

# What issue 6 wants to see put back.
WANTED = """
D1 D3 D4 D5 D18 D23 D24 D25 D28 D29 D31 D35 D36 D37 D38 D39 D43 D45 D48 D55 S6 S7 S8 S9 S10 S11 S12 S16 S20 S21
S22 S24 S30 S31 S32 S34 S36 S38 S41 S47 S48 T3 T4 T7 U3 U4 U6
"""
MUTANTS = read_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_tree(mutant: Mutant) -> None:
    assert not is_stale(mutant), f"{mutant.file} has no longer the text that {mutant.name} changes"
    assert mutant.old != mutant.new
    assert mutant.why
    assert mutant.tests
    for node in mutant.tests:
        path, _, name = node.partition("::")
        written = re.search(rf"^(async )?def {name.partition('[')[0]}\(", (ROOT / path).read_text(), re.MULTILINE)
        assert written, f"{node} is named by {mutant.name} and does not exist"


def test_every_wanted_defect_has_its_mutant() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))
    assert set(WANTED.split()) <= set(names)


def test_a_changed_python_file_is_still_python() -> None:
    """A mutant that cannot be imported is killed by everything and shows nothing."""
    for mutant in MUTANTS:
        if mutant.file.endswith(".py"):
            changed = (ROOT / mutant.file).read_text().replace(mutant.old, mutant.new)
            compile(changed, mutant.file, "exec")
