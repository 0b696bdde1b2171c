"""The SQL of the ledger by name. Python holds none.

-- plan_find --                     parameters by name: tx.all("plan_find", keys=…)
-- plan_insert (a, b, c) --         rows of tx.many are tuples in this order
-- plan_find @postgres --           the same statement in the other dialect
-- {job} --                         a fragment, used as {job}
{each ids}                          a table with a column `value`: the items of the JSON list :ids
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

Dialect = Literal["sqlite", "postgres"]

_HEADER: Final = re.compile(
    r"^-- (\{?)([a-z_0-9]+)\}?(?: \(([a-z_0-9, \n-]+)\))?(?: @(sqlite|postgres))? --$", re.MULTILINE
)
_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")
_EACH: Final = re.compile(r"\{each ([a-z_0-9]+)\}")
_ALL: Final = re.compile(r"\{all ([a-z_0-9]+)\}")
_IN_EACH: Final = re.compile(r"IN \(SELECT value FROM (\{each [a-z_0-9]+\})\)")
_EACH_TEXT: Final = {
    "sqlite": r"json_each(:\1)",
    "postgres": r"jsonb_array_elements_text(CAST(:\1 AS jsonb)) AS each(value)",
}
_PLAIN_INSERT: Final = re.compile(r"(INSERT INTO [^;]*?\))\s*VALUES\s*\(([^()]*)\)\Z", re.DOTALL)
_folders: list[Path] = [Path(__file__).parent / "sql"]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of one dialect, ready for its driver."""

    name: str
    text: str
    columns: tuple[str, ...]  # of the positional rows of tx.many; () when parameters go by name
    gathered: int | None = None  # the place of the column that {all …} gathers
    common: tuple[int, ...] = ()  # the places of the other columns that the text uses
    block: str | None = None  # a plain insert of several rows: `many` puts their placeholders in


def register(folder: Path) -> None:
    """Add another package's folder of .sql files."""
    if folder not in _folders:
        _folders.append(folder)
        statements.cache_clear()


@cache
def statements(dialect: Dialect) -> dict[str, Statement]:
    """Read every statement in one dialect."""
    texts: dict[str, str] = {}
    order: dict[str, tuple[str, ...]] = {}
    fragments: dict[str, str] = {}
    chosen: set[str] = set()
    for path in sorted(file for folder in _folders for file in folder.glob("*.sql")):
        for fragment, name, columns, only, body in _entries(path.read_text(encoding="utf-8")):
            if columns:
                order[name] = columns
            if only not in (None, dialect) or (only is None and name in chosen):
                continue
            if only:
                chosen.add(name)
            (fragments if fragment else texts)[name] = body
    return {name: _prepared(name, body, order.get(name, ()), fragments, dialect) for name, body in texts.items()}


def _entries(text: str) -> list[tuple[bool, str, tuple[str, ...], str | None, str]]:
    heads = list(_HEADER.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [
        (
            head[1] == "{",
            head[2],
            tuple(name.strip(" \n-") for name in head[3].split(",")) if head[3] else (),
            head[4],
            _bare(text[head.end() : end]),
        )
        for head, end in zip(heads, ends, strict=True)
    ]


def _bare(body: str) -> str:
    """Drop whole-line comments: the sentence of each statement is for the reader."""
    return "\n".join(line for line in body.splitlines() if not line.lstrip().startswith("--")).strip().rstrip(";")


def _prepared(name: str, body: str, columns: tuple[str, ...], fragments: dict[str, str], dialect: Dialect) -> Statement:
    for fragment, text in fragments.items():
        body = body.replace("{" + fragment + "}", text)
    if dialect == "postgres":  # a list leads, it does not filter
        body = _IN_EACH.sub(r"= ANY (ARRAY(SELECT value FROM \1))", body)
    body = _EACH.sub(_EACH_TEXT[dialect], body)
    if dialect == "postgres":
        body = _ALL.sub(r"(:\1)", body)
        return Statement(name, _PARAMETER.sub(r"%(\1)s", body.replace("%", "%%")), columns)
    if not columns:
        return Statement(name, body, columns)
    if gathered := _ALL.search(body):
        return _gathering(name, body, columns, gathered[1])
    places = {column: f"?{number}" for number, column in enumerate(columns, 1)}
    text = _PARAMETER.sub(lambda match: places[match[1]], body)
    return Statement(name, text, columns, block=_block(body, columns))


def _block(body: str, columns: tuple[str, ...]) -> str | None:
    """Give the text that inserts many rows in one step, where an insert is nothing but its values."""
    match = _PLAIN_INSERT.match(body)
    if match is None:
        return None
    places = {column: f"column{number}" for number, column in enumerate(columns, 1)}
    values = _PARAMETER.sub(lambda parameter: places[parameter[1]], match[2])
    return f"{match[1]} SELECT {values} FROM (VALUES {{rows}})"


def _gathering(name: str, body: str, columns: tuple[str, ...], gathered: str) -> Statement:
    """Prepare a statement that runs once per group of rows: ?1 is the JSON list, the others follow."""
    body = _ALL.sub("(SELECT value FROM json_each(?1))", body)
    used = {match[1] for match in _PARAMETER.finditer(body)}
    common = [column for column in columns if column in used]
    places = {column: f"?{number}" for number, column in enumerate(common, 2)}
    text = _PARAMETER.sub(lambda match: places[match[1]], body)
    return Statement(name, text, columns, columns.index(gathered), tuple(columns.index(column) for column in common))
