"""Nothing that a person can meet is missing from the documentation. The generators of the pages are not asked."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import click
import pytest

import longshore
from longshore.cli.main import COMMANDS
from longshore.cli.run_command import program
from longshore.config.load import keys_of, sections
from longshore.domain.reasons import REASONS
from longshore.ledger import Ledger

DOCS = Path(__file__).parents[2] / "docs"
METRICS = Path(longshore.__file__).parent / "web" / "metrics.py"


def written(name: str) -> str:
    return (DOCS / "reference" / name).read_text()


def section(page: str, heading: str) -> str:
    """Give one section of a page, down to the next heading."""
    found = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"no section {heading}"
    return found[1]


@pytest.mark.parametrize("name", sorted(name for group in COMMANDS.values() for name in group))
def test_every_command_and_option(name: str) -> None:
    command = program.get_command(click.Context(program), name)
    assert command is not None
    below = command.commands if isinstance(command, click.Group) else {}
    for words, one in [(name, command), *((f"{name} {sub}", one) for sub, one in below.items())]:
        text = section(written("cli.md"), f"`longshore {words}`") + section(written("cli.md"), "Common options")
        options = [option for option in one.params if isinstance(option, click.Option) and not option.hidden]
        missing = [option.opts for option in options if not any(f"`{opt}`" in text for opt in option.opts)]
        assert [found for found in missing if found != ["--help"]] == []


@pytest.mark.parametrize("name", ["", *sections()])
def test_every_setting(name: str) -> None:
    text = section(written("settings.md"), f"`[{name}]`" if name else "Top level")
    assert [key for key in keys_of(name) if key != "named" and f"| `{key}` |" not in text] == []


def test_every_reason() -> None:
    text = written("reasons.md")
    assert [name for name in REASONS if f"| `{name}` |" not in text] == []


def test_every_route() -> None:
    text = written("api.md")
    described = json.loads(written("openapi.json"))
    routes = [(method.upper(), path) for path, item in described["paths"].items() for method in item]
    assert len(routes) > 20
    assert [route for route in routes if f"| `{route[0]}` | `{route[1]}` |" not in text] == []


@pytest.mark.parametrize("page", ["reference/metrics.md", "how-to/monitor.md"])
def test_every_metric(page: str) -> None:
    names = set(re.findall(r'"(longshore_\w+)"', METRICS.read_text()))
    text = (DOCS / page).read_text()
    assert len(names) >= 20
    assert sorted(name for name in names if not re.search(rf"`{name}(_total)?[`{{]", text)) == []


def test_every_table_and_column(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "ledger.db", create=True).close()
    reader = sqlite3.connect(tmp_path / "ledger.db")
    try:
        found = reader.execute("SELECT name, type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
        tables = {
            name: [row[1] for row in reader.execute("SELECT * FROM pragma_table_info(?)", (name,))]
            for name, kind in found
            if kind == "table"
        }
    finally:
        reader.close()
    page = written("tables.md")
    assert len(tables) > 15
    for table, columns in tables.items():
        text = section(page, f"`{table}`")
        assert [column for column in columns if f"| `{column}` |" not in text] == [], table
    assert [name for name, kind in found if kind == "view" and f"| `{name}` |" not in page] == []


def test_every_public_name() -> None:
    text = written("python.md")
    assert [name for name in longshore.__all__ if not re.search(rf"^\| `{name}[`(]", text, re.MULTILINE)] == []


def test_the_index_leads_to_every_page() -> None:
    links = set(re.findall(r"\]\(([^)#\s]+)\)", (DOCS / "README.md").read_text()))
    pages = {str(path.relative_to(DOCS)) for path in [*DOCS.rglob("*.md"), *DOCS.rglob("*.json")]} - {"README.md"}
    assert sorted(pages - links) == []
