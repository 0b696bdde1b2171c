"""Reference pages that are extracted from several sources: SQL tables, metrics, Python names, API routes."""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

import longshore
from longshore.ledger import Ledger
from longshore.lists import FORMATS
from longshore.lists.record_fields import ALIASES, FIELDS, URL_NAMES
from longshore.store import open_store
from longshore.web.metrics import Metrics
from longshore.web.server_options import ServerOptions
from longshore.web.service import Service
from scripts.openapi import document

NOTICE = "<!-- made by `python -m scripts.reference`; edit the code, not this page -->"
TABLE = r"((?:^--[^\n]*\n)*)^CREATE TABLE (\w+) \(\n(.*?)^\)"
MIGRATIONS = Path(longshore.__file__).parent / "ledger" / "migrations" / "sqlite"

WORDS = tomllib.loads(Path(__file__).with_name("reference_words.toml").read_text())


def tables() -> Iterator[str]:
    yield from ("# Tables", "", NOTICE, "")
    yield "The names are a contract; columns may be added. Times are integer microseconds UTC by the ledger's clock."
    yield "Types are SQLite's; PostgreSQL has tables and columns of the same names, a `url_hash` in `url_versions`, and a table"
    yield "`commits`: the number of each connection's last transaction, which decides a COMMIT whose response was lost. You may read"
    yield "the tables directly; write only through the program, which enforces leases and checks."
    text = "\n".join(path.read_text() for path in sorted(MIGRATIONS.glob("[0-9]*.sql")))
    for comment, name, body in re.findall(TABLE, text, re.MULTILINE | re.DOTALL):
        said = " ".join(line.removeprefix("--").strip() for line in comment.splitlines())
        yield from (
            "",
            f"## `{name}`",
            "",
            said or WORDS["tables"][name],
            "",
            "| column | type | meaning |",
            "|---|---|---|",
        )
        added = "\n".join(
            f"  {column}" for column in re.findall(rf"^ALTER TABLE {name} ADD COLUMN ([^;]+);", text, re.MULTILINE)
        )
        columns = _columns(name, f"{body}\n{added}")
        yield from (f"| `{column}` | {kind} | {meaning} |" for column, kind, meaning in columns)
    yield from ("", "## Views, to read", "", "| view | shows |", "|---|---|")
    yield from (
        f"| `{name}` | {WORDS['views'][name]} |" for name in re.findall(r"^CREATE VIEW (\w+)", text, re.MULTILINE)
    )


def _columns(table: str, body: str) -> Iterator[tuple[str, str, str]]:
    for line in body.splitlines():
        found = re.match(r"  (\w+) +(TEXT|INTEGER|REAL|BLOB)\b([^-]*)(?:-- (.*))?", line)
        if found:
            name, kind, rest, said = found.groups()
            needed = "" if "NOT NULL" in rest or "PRIMARY KEY" in rest else ", may be null"
            words = WORDS["columns"]
            meaning = said if said and not said.startswith("(") else words.get(f"{table}.{name}") or words[name]
            yield name, kind.lower() + needed, meaning.replace("|", "\\|")


@contextmanager
def _service() -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder, "ledger.db"), create=True) as ledger:
        store = open_store(str(Path(folder, "store")))
        try:
            yield Service(ledger, store, ServerOptions())
        finally:
            store.close()


def metrics() -> Iterator[str]:
    yield from ("# Metrics", "", NOTICE, "")
    yield "The metrics of `/metrics`. Gauges are read from the ledger at each scrape; counters and histograms cover this process."
    yield "[Monitor a depot](../how-to/monitor.md) explains which to watch."
    yield from ("", "| metric | kind | labels | meaning |", "|---|---|---|---|")
    with _service() as service:
        made = Metrics(service)
        labels = {one._name: one._labelnames for one in vars(made).values() if isinstance(one, MetricWrapperBase)}
        for family in made.registry.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            keys = labels.get(family.name) or list(dict.fromkeys(key for one in family.samples for key in one.labels))
            shown = ", ".join(f"`{key}`" for key in keys if key != "le")
            yield f"| `{name}` | {family.type} | {shown} | {family.documentation} |"


def api() -> Iterator[str]:
    described = json.loads(document())
    yield from ("# HTTP API", "", NOTICE, "")
    yield "All routes. Bodies, parameters and responses are in [openapi.json](openapi.json) (OpenAPI 3.1); permissions are in"
    yield "[the dashboard's page](../dashboard.md). Every request carries `Authorization: Bearer TOKEN`. [Use the HTTP"
    yield "API](../how-to/use-the-api.md) is a tutorial with `curl`: one job and `?wait=`, `Idempotency-Key`, many jobs as NDJSON,"
    yield "pagination, the event stream and `Last-Event-ID`, content and `Range`, problems."
    tags: dict[str, list[str]] = {}
    for path, item in described["paths"].items():
        for method, operation in item.items():
            does = operation["description"].split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
            tags.setdefault(operation["tags"][0], []).append(f"| `{method.upper()}` | `{path}` | {does} |")
    for tag, rows in tags.items():
        yield from ("", f"## {tag.capitalize()}", "", "| method | path | does |", "|---|---|---|", *rows)


def lists() -> Iterator[str]:
    yield from ("# Lists", "", NOTICE, "")
    yield "`longshore add FILE …` and `longshore get -i FILE` read these formats. The format is detected from the content, never from the"
    yield "name; `add --format` names it. A list may be compressed with gzip, bzip2, xz or Zstandard (`pip install 'longshore[zstd]'` before"
    yield "Python 3.14); `-` is stdin."
    yield from ("", "## Formats", "", "| format | content |", "|---|---|")
    yield from (f"| `{name}` | {said} |" for name, said in FORMATS.items())
    yield from (
        "",
        "## Columns and keys",
        "",
        "The columns of CSV and Parquet and the keys of JSONL. Case does not matter; `-` and",
    )
    yield "spaces equal `_`. Other names are counted in a message and not used; one that looks like an expectation (`sha3`, `file_size`)"
    yield "refuses its line."
    yield from ("", "| name | meaning |", "|---|---|")
    words = WORDS["list_fields"]
    assert words.keys() == FIELDS, words.keys() ^ FIELDS
    yield from (f"| `{name}` | {said} |" for name, said in words.items())
    aliases = ", ".join(f"`{other}` for `{name}`" for other, name in sorted(ALIASES.items()))
    yield from ("", f"Also understood: {aliases}.", "", "## The URL under another name", "")
    yield (
        "Without a `url`, the first of these that has a value is the URL: "
        + ", ".join(f"`{name}`" for name in URL_NAMES[1:])
        + "."
    )
    yield "`--url-column NAME` names another one. A record whose fields for a URL are empty is a work without a file, as is a"
    yield "work of OpenAlex or Unpaywall without a location: it is counted, and not an error. A `doi` is used (as"
    yield "`https://doi.org/…`, with the work id `doi:…`) where a record has no field for a URL. A bare DOI may stand wherever a URL may; a"
    yield "URL of doi.org stays the URL that it is."
    yield from ("", "## Refused lines", "")
    yield "An invalid line is named with its number and skipped; the others are planned, and the exit code is 3. `--rejects FILE` writes"
    yield "all refused lines as they came, each below a comment `# refused: LIST:LINE: MESSAGE`, and below the heading of a CSV"
    yield "file. Correct the lines and give FILE in again, with the same options; the comments are skipped, and FILE may be the list and"
    yield "the target at the same time. An empty FILE: nothing was refused. Rows of Parquet are written as JSONL, and files of a Metalink"
    yield "as comments only. Lists of one call must have one format, and CSV comes one file at a time."
