"""The reference page of the Python interface: every public name with its signature, fields and types, read from the code."""

from __future__ import annotations

import dataclasses
import inspect
import re
import tempfile
from collections.abc import Callable, Iterator
from enum import Enum
from types import ModuleType
from typing import Any

import longshore
from longshore import compat, errors
from longshore.domain import outcomes
from longshore.ledger import Ledger
from scripts.reference_pages import NOTICE

COMMENT = re.compile(r"^    (\w+): [^#]*?(?:  # (.*))?$")


def python() -> Iterator[str]:
    yield from ("# Python", "", NOTICE, "")
    yield "`import longshore` provides the names of the first table; the package is typed (`py.typed`). `Depot` is the synchronous"
    yield "interface; `AsyncDepot` has the same methods as coroutines. `on_note` receives [run events](events.md)."
    yield "Times are integer microseconds UTC (`Micros`); a `Scope` is `(tenant_id, project_id)`."
    names = {name: getattr(longshore, name) for name in sorted(longshore.__all__)}
    yield from ("", "## `longshore`", *_names(names))
    with tempfile.TemporaryDirectory() as folder, longshore.open(folder) as depot:
        yield from ("", "## `longshore.Depot`", *_names(_methods(depot)))
        for name, one in _methods(depot).items():
            yield from ("", f"### `Depot.{name}`", *_told(one))
    for name, one in names.items():
        if inspect.isclass(one) and name not in ("Depot", "AsyncDepot"):
            yield from ("", f"### `{name}`", *_told_class(one))
        elif inspect.isfunction(one):
            yield from ("", f"### `{name}`", *_told(one))
    yield from (
        "",
        "## `longshore.ledger.Ledger`",
        "",
        "The same methods on SQLite and PostgreSQL. `read` and `write` run any function of `longshore.ledger.operations` and",
        "`longshore.ledger.queries` in a transaction.",
        *_names(_methods(Ledger)),
        "",
        "## `longshore.compat`",
        "",
        "The classic verbs, one job at a time ([the pattern](../explanation/usage-pattern.md)).",
        *_names({name: one for name, one in vars(compat).items() if _own_function(one, compat)}),
    )
    ends = {name: one for name, one in vars(outcomes).items() if _defined(one, outcomes)}
    yield from ("", "## `longshore.domain.outcomes`", "", "Outcomes of an attempt, for `Ledger.settle`.", *_names(ends))
    wrong = {name: one for name, one in vars(errors).items() if _defined(one, errors)}
    yield from ("", "## `longshore.errors`", "", "All are subclasses of `LongshoreError`.", *_names(wrong, calls=False))


def _defined(one: object, module: object) -> bool:
    return inspect.isclass(one) and inspect.getmodule(one) is module


def _own_function(one: object, module: ModuleType) -> bool:
    return inspect.isfunction(one) and one.__module__ == module.__name__ and not one.__name__.startswith("_")


def _methods(kind: object) -> dict[str, Callable[..., Any]]:
    found = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {name: one for name, one in found.items() if callable(one)}


def _names(names: dict[str, Any], *, calls: bool = True) -> Iterator[str]:
    yield from ("", "| name | does |", "|---|---|")
    for name, one in names.items():
        does = (inspect.getdoc(one) or "").partition("\n")[0].replace("|", "\\|")
        shown = name + _call(one) if calls and inspect.isroutine(one) else name
        yield f"| `{shown}` | {does} |"


def _call(one: Callable[..., Any]) -> str:
    """Return the parameters by name; an optional one ends with `=`."""
    parts, starred = [], False
    for parameter in inspect.signature(one).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        prefix = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        prefix = "**" if parameter.kind is parameter.VAR_KEYWORD else prefix
        starred = starred or prefix == "*"
        parts.append(prefix + parameter.name + ("" if parameter.default is parameter.empty else "="))
    return f"({', '.join(parts)})"


def _told(one: Callable[..., Any]) -> Iterator[str]:
    """Yield a function's signature and its documentation."""
    yield from ("", "```text", _typed(one), "```", "", *_prose(one))


def _prose(one: object) -> list[str]:
    return [line.rstrip() for line in (inspect.getdoc(one) or "").splitlines()]


def _typed(one: Callable[..., Any], name: str | None = None) -> str:
    """Return a signature with the types and defaults as the code has them."""
    signature, parts, starred = inspect.signature(one), [], False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        prefix = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        default = "" if parameter.default is parameter.empty else f" = {_value(parameter.default)}"
        parts.append(f"{prefix}{parameter.name}{_annotation(parameter.annotation)}{default}")
    returns = signature.return_annotation
    shown = "" if returns is signature.empty else f" -> {returns if isinstance(returns, str) else _bare(returns)}"
    return f"{name or getattr(one, '__name__', '')}({', '.join(parts)}){shown}"


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return f": {annotation if isinstance(annotation, str) else _bare(annotation)}"


def _bare(annotation: Any) -> str:
    return inspect.formatannotation(annotation)


def _value(value: Any) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)


def _told_class(kind: type) -> Iterator[str]:
    """Yield a class's documentation, its fields with types and defaults, and its own methods."""
    yield from ("", *_prose(kind), "")
    if issubclass(kind, Enum):
        yield "Values: " + ", ".join(f"`{name}` = `{one.value!r}`" for name, one in kind.__members__.items()) + "."
    elif rows := list(_fields(kind)):
        yield from ("| field | type | default | meaning |", "|---|---|---|---|")
        yield from ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    own = {name: one for name, one in vars(kind).items() if not name.startswith("_")}
    for name, one in own.items():
        if isinstance(one, property) and not issubclass(kind, Enum):
            yield from ("", f"`.{name}`{_annotation(inspect.signature(one.fget).return_annotation)} — {_prose(one)[0]}")  # type: ignore[arg-type]
        elif inspect.isfunction(one):
            yield from ("", f"`.{_typed(one)}` — {' '.join(_prose(one))}")


def _fields(kind: type) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, default and meaning of what a record or a protocol has; the meaning is the comment in the code."""
    said = {match[1]: match[2] or "" for match in map(COMMENT.match, inspect.getsource(kind).splitlines()) if match}
    defaults = {one.name: one for one in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    for name, annotation in vars(kind).get("__annotations__", {}).items():
        if name.startswith("_"):
            continue
        default = ""
        if (field := defaults.get(name)) is not None and field.default is not dataclasses.MISSING:
            default = f"`{_value(field.default)}`"
        elif field is not None and field.default_factory is not dataclasses.MISSING:
            default = "empty"
        shown = annotation if isinstance(annotation, str) else _bare(annotation)
        yield f"`{name}`", f"`{shown}`", default, said.get(name, "")
