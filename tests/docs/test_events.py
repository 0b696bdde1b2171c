"""The reference has every kind of run event with its facts, and every exit code with its rank."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import longshore
from longshore import errors
from longshore.cli import run_command
from longshore.cli.commands.run import code_of
from longshore.domain.run_events import Kind, RunEvent
from scripts.reference import EXIT_CODES, PRECEDENCE
from scripts.reference_events import INTERNAL
from tests.support.origin import Origin, Thing, status

SOURCE = Path(longshore.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "events.md").read_text()


def facts_on_the_page(kind: str) -> set[str]:
    found = re.search(rf"^## `{kind}`$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"{kind} is not on the page: give it a schema and run `python -m scripts.reference`"
    return set(re.findall(r"^\| `(\w+)` \|", found[1], re.MULTILINE))


def told() -> Iterator[tuple[str, str, set[str]]]:
    """Yield where the code reports an event: the place, the kind, and the facts that it names there."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name in {"tell", "RunEvent"} and isinstance(node.args[0].value, str):
                    facts = {one.arg for one in node.keywords if one.arg and name == "tell"}
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}", node.args[0].value, facts


def test_every_kind_is_on_the_page() -> None:
    for kind in set(get_args(Kind)) - INTERNAL:
        facts_on_the_page(kind)


def test_every_fact_that_the_code_names_is_on_the_page() -> None:
    found = list(told())
    assert {"started", "progress", "retry", "waiting", "completed"} <= {kind for _, kind, _ in found}
    assert [(place, kind, facts - facts_on_the_page(kind)) for place, kind, facts in found if facts] == [
        (place, kind, set()) for place, kind, facts in found if facts
    ]


def test_every_fact_of_real_runs_is_on_the_page(tmp_path: Path) -> None:
    """The facts that are passed on as a dictionary are seen only here."""
    notes: list[RunEvent] = []
    settings: dict[str, Any] = {"network": {"allow": ["127.0.0.0/8"]}, "retry": {"base_s": 0.01, "max_attempts": 2}}
    with Origin() as origin, longshore.open(tmp_path / "depot", **settings) as depot:
        urls = [
            origin.add("/good", Thing(b"x" * 1000)),
            origin.add("/gone", status(404)),
            origin.add("/busy", status(503)),
        ]
        depot.add(urls, on_note=notes.append)
        depot.run(on_note=notes.append)
        depot.get(urls, on_note=notes.append)
    assert {note.kind for note in notes} >= {"planned", "started", "completed", "failed", "retry", "held"}
    assert {
        (note.kind, name) for note in notes for name in note.facts if name not in facts_on_the_page(note.kind)
    } == set()


def test_every_exit_code_is_in_the_table() -> None:
    listed = {int(code) for codes in EXIT_CODES for code in codes.split(", ")}
    named = ("OK", "UNEXPECTED", "USAGE", "SOME_FAILED", "WORK_LEFT", "DAMAGE", "PERMISSION", "PIPE_CLOSED")
    used = {getattr(run_command, name) for name in named} | set(run_command.BY_SIGNAL.values())
    used |= {one.exit_code for _, one in inspect.getmembers(errors, inspect.isclass) if hasattr(one, "exit_code")}
    assert listed == used


@pytest.mark.parametrize(
    ("failed", "stopped_by", "left", "code"),
    [
        (1, "SIGINT", True, 130),
        (1, "SIGTERM", True, 143),
        (1, "max_wait", True, 3),
        (0, "max_wait", True, 4),
        (0, None, True, 4),
    ],
)
def test_the_winner_among_the_codes_of_a_run(failed: int, stopped_by: str | None, left: bool, code: int) -> None:
    assert code_of(failed, stopped_by=stopped_by, left=left) == code
    assert [one for one in PRECEDENCE if str(code) in one]


def test_the_codes_of_a_run_win_in_the_order_of_the_page() -> None:
    assert PRECEDENCE == ("130 or 143", "3", "4", "5", "1")
    assert ", ".join(PRECEDENCE) in (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
