"""The command `longshore`: a table of commands that are imported when they are called, and nothing before."""

from __future__ import annotations

import os
import sys

from longshore import __version__

TYPE_CHECKING = False  # not from `typing`: it and `contextlib` would be half of what `--help` costs
if TYPE_CHECKING:
    from typing import Final, NoReturn


class Entry:
    """Where a command lies and what it does in one line."""

    __slots__ = ("does", "place")

    def __init__(self, place: str, does: str) -> None:
        self.place, self.does = place, does


# Each command is `module:attribute`, imported when it is called; `longshore --help` reads this table only.
COMMANDS: Final[dict[str, dict[str, Entry]]] = {
    "Get things": {
        "get": Entry("longshore.cli.get:command", "fetch URLs: plan, fetch, verify; zero bytes for what is held"),
        "add": Entry("longshore.cli.add:command", "plan from lists: urls, jsonl, csv, aria2 input, metalink …"),
        "run": Entry("longshore.cli.run:command", "work until nothing is left"),
        "put": Entry("longshore.cli.put:command", "take a local file aboard"),
        "adopt": Entry("longshore.cli.adopt:command", "hash and register files that are already there"),
        "torrent": Entry("longshore.cli.torrent:command", "the qBittorrent side"),
    },
    "See": {
        "status": Entry("longshore.cli.status:command", "what there is, by status"),
        "jobs": Entry("longshore.cli.jobs:command", "list jobs"),
        "show": Entry("longshore.cli.show:command", "one job with its timeline"),
        "failures": Entry("longshore.cli.failures:command", "failures by reason and host"),
        "stats": Entry("longshore.cli.stats:command", "what all downloads together were like"),
        "export": Entry("longshore.cli.export:command", "manifest as jsonl, csv, parquet …"),
    },
    "Steer": {
        "retry": Entry("longshore.cli.retry:command", "make new jobs for failed or canceled ones"),
        "cancel": Entry("longshore.cli.cancel:command", "cancel jobs"),
        "replay": Entry("longshore.cli.replay:command", "do jobs again from their stored inputs"),
        "budget": Entry("longshore.cli.budget:command", "what a tenant may have and has"),
        "serve": Entry("longshore.cli.serve:command", "API and dashboard"),
    },
    "Care": {
        "verify": Entry("longshore.cli.verify:command", "hash what is held and compare"),
        "reconcile": Entry("longshore.cli.reconcile:command", "compare rows, files, parts and intents; heal"),
        "gc": Entry("longshore.cli.gc:command", "collect blobs that nothing refers to"),
        "purge": Entry("longshore.cli.purge:command", "archive and forget old jobs"),
        "backup": Entry("longshore.cli.backup:command", "copy ledger and store, consistent, while work goes on"),
        "restore": Entry("longshore.cli.restore:command", "bring a backup back"),
        "migrate": Entry("longshore.cli.migrate:command", "bring the ledger's schema up to date"),
        "store": Entry("longshore.cli.store:command", "the store itself"),
        "ledger": Entry("longshore.cli.ledger:command", "the ledger itself"),
    },
    "Set up": {
        "config": Entry("longshore.cli.config:command", "show every setting and where it comes from"),
        "doctor": Entry("longshore.cli.doctor:command", "check this machine and this depot"),
        "token": Entry("longshore.cli.token:command", "tokens of the API"),
        "completion": Entry("longshore.cli.completion:command", "shell completion"),
        "version": Entry("longshore.cli.version:command", "version of the program and of what it stands on"),
    },
}


def entries() -> dict[str, Entry]:
    """Give the commands without their headings."""
    return {name: entry for group in COMMANDS.values() for name, entry in group.items()}


def overview() -> str:
    """Say what there is, from the table alone."""
    lines = ["Usage: longshore COMMAND [OPTIONS] …", ""]
    lines += ["Longshore takes artifacts aboard: each exactly once, verified, never lost.", ""]
    for heading, group in COMMANDS.items():
        lines.append(f"{heading}:")
        lines += [f"  {name:<11} {entry.does}" for name, entry in group.items()]
        lines.append("")
    lines += [
        "Common options, after the command:",
        "  --depot DIR   --ledger PLACE   --store PLACE   --tenant NAME   --project NAME",
        "  --json   -q   -v   --allow-net CIDR   --set SECTION.KEY=VALUE   --help",
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
    from longshore.cli.program import run

    sys.exit(run(arguments))


def _open_closed_streams() -> None:
    """Where we were started without stdin, stdout or stderr (`>&-`), have nothing there: a file of ours that is opened under
    such a number would get what somebody says on it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 -- it stays


def end_quietly_by_signal() -> None:
    """Until a worker takes the signals over, they end us at once, without a traceback: every moment is safe to end at."""
    import signal

    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        signal.signal(number, lambda *_, code=code: os._exit(code))


def _answer(text: str) -> NoReturn:
    """Write and end at once, whoever listens."""
    try:  # noqa: SIM105 -- contextlib is not worth its import here
        os.write(1, f"{text}\n".encode())
    except BrokenPipeError:
        pass
    sys.exit(0)
