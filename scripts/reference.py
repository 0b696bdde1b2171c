"""Write the pages of docs/reference from the code: `python -m scripts.reference [--check]`.

A test runs it with --check, so that the pages always match the program.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from longshore.cli.main import COMMANDS, Entry
from longshore.cli.run_command import program
from longshore.config.load import default_of, keys_of, sections
from longshore.domain.kinds import DOWNLOAD, TERMINAL, TORRENT, JobKind, kind_of
from longshore.domain.reasons import REASONS, Kind
from longshore.domain.settings import CredentialSettings, HostSettings
from scripts.reference_events import events
from scripts.reference_pages import NOTICE, api, lists, metrics, tables
from scripts.reference_python import python

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
COMMON = {
    "--depot",
    "--ledger",
    "--store",
    "--tenant",
    "--project",
    "--json",
    "-q",
    "-v",
    "--allow-net",
    "--set",
    "--help",
}
EXIT_CODES = {
    "0": "success: every file is stored",
    "1": "unexpected error",
    "2": "usage error: an option, a setting, or an argument that is not a URL",
    "3": "some items failed permanently (including a refused scheme or address)",
    "4": "stopped before all work was done and nothing failed (3 takes precedence), offline, or after "
    "`network.max_refusals` refusals in a row (4 takes precedence)",
    "5": "damage found, results that an export had to leave out, or the store is missing",
    "6": "missing or invalid token, or missing permission",
    "10": "no depot found (commands that add work, and `token create`, create one)",
    "11": "locked for maintenance",
    "12": "the ledger's schema version does not match this program",
    "141": "the program that read stdout closed the pipe",
    "130, 143": "stopped by SIGINT, SIGTERM; the ledger is consistent, and the next run continues",
}

PRECEDENCE = ("130 or 143", "3", "4", "5", "1")


def cli() -> Iterator[str]:
    yield from ("# Command line", "", NOTICE, "")
    yield "Data goes to stdout, everything else to stderr. `--json` writes [JSON lines](events.md). Precedence of settings: flag,"
    yield "environment, `longshore.toml`, default."
    yield from ("", "## Exit codes", "", "| code | meaning |", "|---|---|")
    yield from (f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    yield from (
        "",
        f"When several apply, the first of these wins: {', '.join(PRECEDENCE)}. Codes 2, 10, 11 and 12 mean that the",
    )
    yield "command did not begin its work. `error` lines of `--json` carry the code as `exit_code`."
    yield from (
        "",
        "## Common options",
        "",
        "Every command accepts these options before or after its name; the later one wins, lists are joined.",
        "",
    )
    yield "The default depot is `$XDG_DATA_HOME/longshore`: `~/.local/share/longshore` on Linux, `~/Library/Application Support/longshore`"
    yield "on macOS. Where a command takes a job, at least 6 characters of the beginning or the end of its id are enough, if no other"
    yield "job has them. Ids begin with their time: the end is what tells jobs of one list apart."
    yield ""
    yield from _options(_command("config"), common=True)
    for heading, group in COMMANDS.items():
        yield from ("", f"## {heading}")
        for name, entry in group.items():
            if importlib.util.find_spec(entry.place.partition(":")[0]):
                yield from _described(f"longshore {name}", name, entry)


def _command(name: str) -> click.Command:
    found = program.get_command(click.Context(program), name)
    assert found is not None
    return found


def _described(title: str, name: str, entry: Entry) -> Iterator[str]:
    command = _command(name)
    yield from ("", f"### `{title}`", "", f"*{entry.does}*")
    yield from _body(title, command)
    if isinstance(command, click.Group):
        for sub_name, sub in sorted(command.commands.items()):
            yield from ("", f"#### `{title} {sub_name}`")
            yield from _body(f"{title} {sub_name}", sub)


def _body(title: str, command: click.Command) -> Iterator[str]:
    arguments = [one.make_metavar(click.Context(command)) for one in command.params if isinstance(one, click.Argument)]
    yield from ("", f"    {title} [OPTIONS] {' '.join(arguments)}".rstrip(), "")
    yield from inspect.cleandoc(command.help or "").replace("\b\n", "").splitlines()
    options = list(_options(command, common=False))
    if options:
        yield from ("", *options)


def _options(command: click.Command, *, common: bool) -> Iterator[str]:
    rows = []
    for option in command.params:
        if not isinstance(option, click.Option) or option.hidden or bool(COMMON & set(option.opts)) != common:
            continue
        names = ", ".join(f"`{name}`" for name in option.opts)
        metavar = "" if option.is_flag or option.count else f" {_metavar(option)}"
        rows.append(f"| {names}{metavar.replace('|', chr(92) + '|')} | {option.help or ''} |")
    if rows:
        yield from ("| option | does |", "|---|---|", *rows)


def _metavar(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return " | ".join(str(choice) for choice in option.type.choices)
    return option.metavar or option.type.name.upper()


def settings() -> Iterator[str]:
    yield from ("# Settings", "", NOTICE, "")
    yield "In `longshore.toml` in the depot, or in the environment as `LONGSHORE_SECTION__KEY` (lists and tables as JSON), or"
    yield "for one call with `--set SECTION.KEY=VALUE`. Precedence: flag, environment, file, default. `longshore config` shows"
    yield "every value and where it comes from; an unknown key is an error. Every `_s` takes fractions."
    yield "Every key with `bytes` takes units: `500MB` (powers of 1000), `2GiB` and `64k` (powers of 1024)."
    for section in ["", *sections()]:
        record = sections().get(section)
        yield from ("", f"## `[{section}]`" if section else "## Top level", "")
        if record is not None:
            yield from ((record.__doc__ or "").splitlines()[0], "")
        yield from ("| key | default | meaning |", "|---|---|---|")
        for name, field in keys_of(section).items():
            if name != "named":
                yield f"| `{name}` | {_written(default_of(field))} | {field.doc} |"
        if section in {"hosts", "credentials"}:
            yield from _named(section)
    yield from ("", "The shipped profiles of well-known hosts are in `longshore/config/profiles.toml`.")


def _named(section: str) -> Iterator[str]:
    record = {"hosts": HostSettings, "credentials": CredentialSettings}[section]
    yield from ("", f'Settings for one host, in the table `[{section}."example.org"]`:', "")
    yield from ("| key | meaning |", "|---|---|")
    for name, key in record.KEYS.items():
        yield f"| `{name}` | {key.doc} |"


def _written(value: Any) -> str:
    return "" if value in (None, "") else f"`{json.dumps(value)}`"


KINDS = {
    Kind.TRANSIENT: "retried later, with full jitter; counts as an attempt",
    Kind.FRESH: "the part is discarded and the job is retried once from the beginning; a second failure is final",
    Kind.PERMANENT: "final at once",
    Kind.POLICY: "final at once: refused by the local policy, not by the server",
    Kind.INFRASTRUCTURE: "a local problem: the job waits, and it does not count as an attempt",
}


def reasons() -> Iterator[str]:
    yield from ("# Reasons", "", NOTICE, "")
    yield "The command line, the API, metrics, events and these pages use the same reasons. The kind determines what happens next."
    yield from ("", "| kind | what happens next |", "|---|---|")
    yield from (f"| {kind.value} | {meaning} |" for kind, meaning in KINDS.items())
    yield from ("", "| reason | kind | meaning | what to do |", "|---|---|---|---|")
    for reason in REASONS.values():
        yield f"| `{reason.name}` | {reason.kind.value} | {reason.meaning} | {reason.remedy} |"
    yield "| `http_NNN` | transient or permanent | the server answered NNN | 202, 408, 425, 429 and most 5xx are retried; every other status except 200 and 206 is final |"


def states() -> Iterator[str]:
    yield from ("# Stages and statuses", "", NOTICE, "")
    yield "Every job type has its own stages; each stage has one canonical status. A terminal stage is final: a retry is a"
    yield "new job, linked by `retry_of`. A new lease epoch restarts the attempt."
    titles = {DOWNLOAD: "Downloads", TORRENT: "Torrents", "your own": "Custom jobs"}
    for job_type, title in titles.items():
        yield from ("", f"## {title}", "", "| stage | status | next stages |", "|---|---|---|")
        kind = kind_of(job_type)
        for stage, status in kind.stages.items():
            onward = ", ".join(f"`{one}`" for one in kind.stages if one in kind.moves[stage]) or "none: terminal"
            yield f"| `{stage}` | {status.value} | {onward} |"
        if "HEAD_DONE" in kind.stages:
            yield "\n`HEAD_DONE` is written only by callers of `advance` that send a HEAD request; the worker does not send one."
        yield from ("", *_diagram(kind))


def _diagram(kind: JobKind) -> Iterator[str]:
    yield from ("```mermaid", "stateDiagram-v2")
    for stage, status in kind.stages.items():
        if status in TERMINAL:
            yield f"    {stage} --> [*]"
        for onward in kind.stages:
            if onward in kind.moves[stage]:
                yield f"    {stage} --> {onward}"
    yield "```"


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "cli.md": cli,
    "settings.md": settings,
    "lists.md": lists,
    "reasons.md": reasons,
    "states.md": states,
    "events.md": events,
    "tables.md": tables,
    "metrics.md": metrics,
    "python.md": python,
    "api.md": api,
}


def page(name: str) -> str:
    """Return one generated page."""
    return "\n".join(PAGES[name]()).rstrip() + "\n"


def main() -> int:
    """Write the pages, or list those that differ."""
    check, differ = "--check" in sys.argv[1:], []
    for name in PAGES:
        path, text = FOLDER / name, page(name)
        if not path.exists() or path.read_text() != text:
            differ.append(name)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    if differ:
        print(("differ: " if check else "written: ") + ", ".join(differ), file=sys.stderr)
    return 1 if check and differ else 0


if __name__ == "__main__":
    sys.exit(main())
