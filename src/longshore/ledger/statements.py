"""The SQL of the ledger by name. Python holds none.

-- plan_find --                     parameters by name: tx.all("plan_find", keys=…)
-- plan_insert (a, b, c) --         rows of tx.many are tuples in this order
-- confirm (a, b) at once --        an update: no two rows of one call change the same row, so they may go in one step
-- plan_find @postgres --           the same statement in the other dialect
-- {job} --                         a fragment, used as {job}
{each ids}                          a table with a column `value`: the items of the JSON list :ids
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Literal

Dialect = Literal["sqlite", "postgres"]

_HEADER: Final = re.compile(
    r"^-- (\{?)([a-z_0-9]+)\}?(?: \(([a-z_0-9, \n-]+)\)( at once)?)?(?: @(sqlite|postgres))? --$", re.MULTILINE
)
_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")
_EACH: Final = re.compile(r"\{each ([a-z_0-9]+)\}")
_ALL: Final = re.compile(r"\{all ([a-z_0-9]+)\}")
_IN_EACH: Final = re.compile(r"IN \(SELECT value FROM (\{each [a-z_0-9]+\})\)")
_EACH_TEXT: Final = {
    "sqlite": r"json_each(:\1)",
    "postgres": r"jsonb_array_elements_text(CAST(:\1 AS jsonb)) AS each(value)",
}
_INSERT: Final = re.compile(
    r"(INSERT INTO [^;]*?\))\s*VALUES\s*\(([^()]*)\)\s*(ON CONFLICT (?:(?!RETURNING)[^:])*)?\Z", re.DOTALL
)
_UPDATE: Final = re.compile(r"(UPDATE \w+ SET .*)\n WHERE (.*)\Z", re.DOTALL)
_FOLDER: Final = Path(__file__).parent / "sql"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of one dialect, ready for its driver."""

    name: str
    text: str
    columns: tuple[str, ...]  # of the positional rows of tx.many; () when parameters go by name
    gathered: int | None = None  # the place of the column that {all …} gathers
    common: tuple[int, ...] = ()  # the places of the other columns that the text uses
    block: str | None = None  # the same for several rows in one step: `many` puts their placeholders in


def user_statement(text: str, dialect: Dialect) -> str:
    """Return a statement of a user's own, with parameters as :name, for the driver of a dialect."""
    if dialect == "sqlite":
        return text
    return _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))


@cache
def statements(dialect: Dialect) -> dict[str, Statement]:
    """Read every statement in one dialect."""
    texts: dict[str, str] = {}
    order: dict[str, tuple[str, ...]] = {}
    fragments: dict[str, str] = {}
    chosen: set[str] = set()
    at_once: set[str] = set()
    for path in sorted(_FOLDER.glob("*.sql")):
        for fragment, name, columns, together, only, body in _entries(path.read_text(encoding="utf-8")):
            if columns:
                order[name] = columns
            if together:
                at_once.add(name)
            if only not in (None, dialect) or (only is None and name in chosen):
                continue
            if only:
                chosen.add(name)
            (fragments if fragment else texts)[name] = body
    made = {name: _prepared(name, body, order.get(name, ()), fragments, dialect) for name, body in texts.items()}
    return {
        name: one if one.block is None or name in at_once or one.text.startswith("INSERT") else replace(one, block=None)
        for name, one in made.items()
    }


def _entries(text: str) -> list[tuple[bool, str, tuple[str, ...], bool, str | None, str]]:
    heads = list(_HEADER.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [
        (
            head[1] == "{",
            head[2],
            tuple(name.strip(" \n-") for name in head[3].split(",")) if head[3] else (),
            head[4] is not None,
            head[5],
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
    """Return the text that does for many rows in one step what the statement does for one; None where nothing says how."""
    places = {column: f"given.column{number}" for number, column in enumerate(columns, 1)}

    def named(text: str) -> str:
        return _PARAMETER.sub(lambda parameter: places[parameter[1]], text)

    if insert := _INSERT.match(body):
        # (WHERE true: without it SQLite would read ON CONFLICT as part of the FROM clause.)
        return f"{insert[1]} SELECT {named(insert[2])} FROM (VALUES {{rows}}) AS given WHERE true {insert[3] or ''}"
    if update := _UPDATE.match(body):
        return f"{named(update[1])} FROM (VALUES {{rows}}) AS given WHERE {named(update[2])}"
    return None


def _gathering(name: str, body: str, columns: tuple[str, ...], gathered: str) -> Statement:
    """Prepare a statement that runs once per group of rows: ?1 is the JSON list, the others follow."""
    body = _ALL.sub("(SELECT value FROM json_each(?1))", body)
    used = {match[1] for match in _PARAMETER.finditer(body)}
    common = [column for column in columns if column in used]
    places = {column: f"?{number}" for number, column in enumerate(common, 2)}
    text = _PARAMETER.sub(lambda match: places[match[1]], body)
    return Statement(name, text, columns, columns.index(gathered), tuple(columns.index(column) for column in common))
