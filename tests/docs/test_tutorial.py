"""The tutorial, typed by a test in an empty directory, ends where it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.program import environment
from tests.support.tutorial import compare, type_tutorial


def test_the_tutorial_ends_where_it_says(tmp_path: Path) -> None:
    assert type_tutorial(tmp_path, f"{sys.executable} -m longshore", environment()) > 20


def test_output_that_differs_is_noticed() -> None:
    compare("x", ["a … c"], ["a b c"])
    with pytest.raises(AssertionError, match=r"expected \['d'\], got \['a b c'\]"):
        compare("x", ["d"], ["a b c"])
    with pytest.raises(AssertionError):
        compare("x", ["a"], ["a", "one more"])
