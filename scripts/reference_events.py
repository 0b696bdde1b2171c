"""The reference page of run events and of the other JSON lines, made from the schemas that the package ships."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import longshore
from longshore.domain.run_events import Kind
from scripts.reference_pages import NOTICE, WORDS

SCHEMAS = Path(longshore.__file__).parent / "cli" / "schemas"
INTERNAL = {"counts"}  # sent from a worker process to its parent, never to a listener of a user
EVERY_LINE = ("type", "schema", "ts")
TYPES = {"integer": "integer", "number": "number", "string": "text", "boolean": "boolean", "array": "list"}


def schema_of(kind: str) -> dict[str, Any]:
    """Return the shipped schema of a type of line."""
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{kind}.json").read_text())
    return schema


def events() -> Iterator[str]:
    """Yield the page of run events and JSON lines."""
    kinds = [kind for kind in get_args(Kind) if kind not in INTERNAL]
    yield from ("# Run events and JSON lines", "", NOTICE, "")
    yield "A run reports what happens to each job as events: to Python's `on_note`, and with `--json` as lines on stdout."
    yield "Both have the same kinds and facts. Fields may be added in later versions; ignore those that you do not know."
    yield from ("", "```python", "def on_note(note):", '    if note.kind == "failed":')
    yield '        print(note.url, note.facts["reason"], note.facts["message"])'
    yield from ("", "", "depot.run(on_note=on_note)", "```", "")
    yield from ("| JSON line | Python | meaning |", "|---|---|---|")
    yield "| `type` | `note.kind` | the kind of event: one of the headings below |"
    yield "| `schema` | | version of the line's fields, 1 |"
    yield "| `ts` | `note.ts` | when it happened: ISO 8601 in UTC; in Python microseconds since 1970 |"
    yield "| | `note.scope` | tenant and project of the job |"
    yield "| `job_id`, `url` | `note.job_id`, `note.url` | the job and its URL without secrets; empty for events of no single job |"
    yield "| every other field | `note.facts[…]` | what the tables below list |"
    yield from (
        "",
        "`note.line()` returns the fields of the JSON line, with `ts` as a number. An exception in `on_note` ends the run;",
    )
    yield "the method raises it when the jobs in progress are settled."
    for kind in kinds:
        yield from ("", f"## `{kind}`", "", schema_of(kind)["title"], *_note(kind))
        yield from ("", "| fact | type | meaning |", "|---|---|---|", *_facts(kind))
    yield from ("", "## Other lines", "")
    yield "Commands that list or change something write lines of these types. Their fields are in"
    yield "`longshore/cli/schemas/TYPE.json` in the package. Errors are one `error` line on stderr, whose `exit_code` is"
    yield "[the exit code](cli.md#exit-codes)."
    yield from ("", "| type | meaning |", "|---|---|")
    others = sorted(path.stem for path in SCHEMAS.glob("*.json") if path.stem not in kinds)
    yield from (f"| `{kind}` | {schema_of(kind)['title']} |" for kind in others)


def _note(kind: str) -> Iterator[str]:
    if kind in WORDS["event_notes"]:
        yield from ("", WORDS["event_notes"][kind])


def _facts(kind: str) -> Iterator[str]:
    schema = schema_of(kind)
    fields = dict(schema["properties"])
    for name, type_name in WORDS["more_facts"].get(kind, {}).items():
        fields.setdefault(name, {"type": type_name})
    for name, value in fields.items():
        if name not in {*EVERY_LINE, "job_id", "url"}:
            words = WORDS["facts"]
            always = "" if name in schema["required"] else ", may be missing"
            yield f"| `{name}` | {_type(value)}{always} | {words.get(f'{kind}.{name}') or words[name]} |"


def _type(value: dict[str, Any]) -> str:
    options = value.get("anyOf", [value])
    names = [TYPES.get(one.get("type", ""), "object") for one in options if one.get("type") != "null"]
    return " or ".join(names) + (" or null" if len(names) < len(options) else "")
