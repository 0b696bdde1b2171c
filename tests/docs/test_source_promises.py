"""The page about the source documents: every promise has a verdict and a test or a command, and what is named exists."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path

import pytest

from longshore.domain.settings import Settings
from tests.docs.test_coming_from import parsed
from tests.docs.test_promise import test_a_named_test_exists as check_test_exists

PAGE = (Path(__file__).parents[2] / "docs/explanation/source-promises.md").read_text()
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if re.match(r"\| (\d|added)", line)
]
TEST = re.compile(r"`(tests/[\w/]+\.py::\w+)`")
COMMAND = re.compile(r"`(longshore [^`]+)`")
SETTING = re.compile(r"`([\w.]+)` = (\d+)")


def test_every_promise_of_the_five_documents_is_there() -> None:
    assert re.findall(r"^## (\d{3}): ", PAGE, re.MULTILINE) == ["000", "001", "002", "003", "004"]
    assert len(ROWS) == 221


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:2])[:50])
def test_a_promise_has_a_verdict_and_what_shows_it(row: list[str]) -> None:
    lines, promise, verdict, seen = row
    assert lines and promise
    assert verdict == "works" or re.match(r"works differently, because \S.{20,}", verdict), verdict
    assert len(TEST.findall(seen)) + len(COMMAND.findall(seen)) == 1, seen


@pytest.mark.parametrize("name", sorted(set(TEST.findall(PAGE))))
def test_a_named_test_exists(name: str) -> None:
    check_test_exists(name)


@pytest.mark.parametrize("typed", sorted(set(COMMAND.findall(PAGE))))
def test_a_named_command_exists(typed: str) -> None:
    parsed(typed)


@pytest.mark.parametrize(("setting", "value"), sorted(set(SETTING.findall(PAGE))))
def test_a_named_setting_has_the_value_of_the_promise(setting: str, value: str) -> None:
    assert attrgetter(setting)(Settings()) == float(value)
