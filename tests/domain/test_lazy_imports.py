"""Packages whose names are imported on first use: what readers and type checkers see is what there is."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

PACKAGES = ["longshore", "longshore.depot", "longshore.ledger", "longshore.lists", "longshore.store"]


def shown(package: str) -> dict[str, tuple[str, str]]:
    """Give the names below `if TYPE_CHECKING`: where each comes from, and under which name."""
    source = Path(importlib.import_module(package).__file__ or "").read_text()
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    return {
        one.asname or one.name: (node.module or "", one.name)
        for node in imports
        if node.module not in ("__future__", "longshore.lazy_imports", "longshore.version")
        for one in node.names
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_is_what_its_import_says(package: str) -> None:
    module = importlib.import_module(package)
    names = shown(package)
    assert set(module.__all__) == set(names)
    for name, (home, there) in names.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), there)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_not_there_is_missed_as_ever(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nobody'"):
        importlib.import_module(package).nobody  # noqa: B018
