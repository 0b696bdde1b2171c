"""The command `longshore`: a table of commands, each imported when it is called."""

from __future__ import annotations

import os
import sys

from longshore import __version__

TYPE_CHECKING = False  # not from `typing`: importing it and `contextlib` would double the time of `--help`
if TYPE_CHECKING:
    from typing import Final, NoReturn


class Entry:
    """Location and one-line description of a command."""

    __slots__ = ("does", "place")

    def __init__(self, place: str, does: str) -> None:
        self.place, self.does = place, does


# Each command is `module:attribute`, imported when it is called; `longshore --help` reads this table only.
COMMANDS: Final[dict[str, dict[str, Entry]]] = {
    "Get things": {
        "get": Entry(
            "longshore.cli.commands.get:command", "fetch URLs: plan, fetch, verify; zero bytes for stored files"
        ),
        "add": Entry(
            "longshore.cli.commands.add:command", "plan from lists: urls, jsonl, csv, aria2 input, metalink …"
        ),
        "run": Entry("longshore.cli.commands.run:command", "run jobs until none is left"),
        "put": Entry("longshore.cli.commands.put:command", "store local files"),
        "adopt": Entry("longshore.cli.commands.adopt:command", "hash and register files that are already there"),
        "submit": Entry("longshore.cli.commands.submit:command", "plan a job of a type of your own"),
        "backfill": Entry("longshore.cli.commands.backfill:command", "adopt an earlier ledger with its files"),
        "torrent": Entry("longshore.cli.commands.torrent:command", "downloads by qBittorrent"),
    },
    "See": {
        "status": Entry("longshore.cli.commands.status:command", "counts by status"),
        "jobs": Entry("longshore.cli.commands.jobs:command", "list jobs"),
        "runs": Entry("longshore.cli.commands.runs:command", "runs with their counts, bytes, begin and end"),
        "show": Entry("longshore.cli.commands.show:command", "one job with its timeline"),
        "failures": Entry("longshore.cli.commands.failures:command", "failures by reason and host"),
        "stats": Entry("longshore.cli.commands.stats:command", "statistics of all downloads"),
        "feed": Entry("longshore.cli.commands.feed:command", "artifacts that are new, changed or gone, for programs"),
        "export": Entry("longshore.cli.commands.export:command", "manifest as jsonl, csv, parquet …"),
    },
    "Steer": {
        "retry": Entry("longshore.cli.commands.retry:command", "make new jobs for failed or canceled ones"),
        "cancel": Entry("longshore.cli.commands.cancel:command", "cancel jobs"),
        "replay": Entry("longshore.cli.commands.replay:command", "run jobs again from their stored inputs"),
        "hosts": Entry("longshore.cli.commands.hosts:command", "hosts: state, limits, pause, resume"),
        "budget": Entry("longshore.cli.commands.budget:command", "limits and usage of a tenant"),
        "serve": Entry("longshore.cli.commands.serve:command", "API and dashboard"),
        "webhooks": Entry("longshore.cli.commands.webhooks:command", "send changes to HTTP endpoints"),
        "mcp": Entry("longshore.cli.commands.mcp:command", "tools and resources for agents (MCP)"),
    },
    "Care": {
        "verify": Entry("longshore.cli.commands.verify:command", "hash stored blobs and compare"),
        "reconcile": Entry(
            "longshore.cli.commands.reconcile:command", "compare rows, files, parts and intents; repair"
        ),
        "gc": Entry("longshore.cli.commands.gc:command", "remove blobs that nothing refers to"),
        "delete": Entry("longshore.cli.commands.delete:command", "delete artifacts with their bytes"),
        "purge": Entry("longshore.cli.commands.purge:command", "archive and delete old jobs"),
        "backup": Entry(
            "longshore.cli.commands.backup:command", "copy ledger and store, consistent, while work goes on"
        ),
        "restore": Entry("longshore.cli.commands.restore:command", "restore a backup"),
        "migrate": Entry("longshore.cli.commands.migrate:command", "bring the ledger's schema up to date"),
        "store": Entry("longshore.cli.commands.store:command", "maintain the store"),
        "ledger": Entry("longshore.cli.commands.ledger:command", "maintain the ledger"),
    },
    "Set up": {
        "config": Entry("longshore.cli.commands.config:command", "show every setting and where it comes from"),
        "doctor": Entry("longshore.cli.commands.doctor:command", "check this machine and this depot"),
        "token": Entry("longshore.cli.commands.token:command", "API tokens"),
        "completion": Entry("longshore.cli.commands.completion:command", "shell completion"),
        "version": Entry("longshore.cli.commands.version:command", "version of the program and of its dependencies"),
    },
}


def entries() -> dict[str, Entry]:
    """Return the commands of all groups in one dict."""
    return {name: entry for group in COMMANDS.values() for name, entry in group.items()}


def overview() -> str:
    """Return the text of `longshore --help`, from the table alone."""
    lines = ["Usage: longshore [COMMON OPTIONS] COMMAND [OPTIONS] …", ""]
    lines += ["Longshore takes artifacts aboard: each exactly once, verified, never lost.", ""]
    for heading, group in COMMANDS.items():
        lines.append(f"{heading}:")
        lines += [f"  {name:<11} {entry.does}" for name, entry in group.items()]
        lines.append("")
    lines += [
        "Common options, before or after the command:",
        "  --depot DIR   --ledger PLACE   --store PLACE   --tenant NAME   --project NAME",
        "  --json   -q   -v   --allow-net CIDR   --set SECTION.KEY=VALUE   --help",
        "",
        "The depot is the directory of --depot or LONGSHORE_DEPOT; otherwise $XDG_DATA_HOME/longshore, which is",
        "  ~/.local/share/longshore on Linux, and ~/Library/Application Support/longshore on macOS.",
        "",
        "Exit codes: 0 all held · 1 unexpected · 2 usage · 3 some failed for good · 4 stopped with work left ·",
        "  5 damage found · 6 permission · 10 no depot · 11 locked · 12 schema does not fit · 130/143 signals",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the command line. Help and version answer before anything is imported."""
    _open_closed_streams()
    arguments = sys.argv[1:]
    if "_LONGSHORE_COMPLETE" not in os.environ:
        if arguments in (["--help"], ["-h"], ["help"]):
            _answer(overview())
        if arguments == ["--version"]:
            _answer(f"longshore {__version__}")
        if not arguments:
            print(overview(), file=sys.stderr)
            sys.exit(2)
    end_quietly_by_signal()
    from longshore.cli.run_command import run

    sys.exit(run(arguments))


def _open_closed_streams() -> None:
    """Open missing standard streams (`>&-`) on /dev/null; otherwise a file opened later would get the descriptor of
    stdin, stdout or stderr, and output would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # open() returns the lowest free descriptor: this one
            stream = open(os.devnull, "w" if number else "r", opener=lambda *_, number=number: number, closefd=True)  # noqa: SIM115 -- it stays
            setattr(sys, name, stream)
            setattr(
                sys, f"__{name}__", stream
            )  # so that it is not collected, and the descriptor not closed, in a worker


def end_quietly_by_signal() -> None:
    """Exit on signals at once, without a traceback, until a worker installs its handlers; this is safe at any point."""
    import signal

    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        signal.signal(number, lambda *_, code=code: os._exit(code))


def _answer(text: str) -> NoReturn:
    """Write text and exit; ignore a closed pipe."""
    try:  # noqa: SIM105 -- contextlib is not worth its import here
        os.write(1, f"{text}\n".encode())
    except BrokenPipeError:
        pass
    sys.exit(0)
