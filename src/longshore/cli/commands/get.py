"""`longshore get`: fetch URLs, unless they are stored already."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import click

from longshore.cli.options import Call, common, waiting
from longshore.cli.output.writer import say, stdout_is_closed
from longshore.cli.run_command import SOME_FAILED, WORK_LEFT, code_of_signal
from longshore.errors import BadInput, NotAUrl, Unavailable

if TYPE_CHECKING:
    from longshore.cli.multiprocess.assign_jobs import Distributor
    from longshore.depot import Depot, Got
    from longshore.domain.model import JobRequest

STDOUT = "-"
MANY: Final = 512  # minimum number of items for which several processes pay off
# With any of these options the fast path for stored URLs does not apply.
_LONG_WAY: Final = ("output", "directory", "sha256", "headers", "mirrors", "priority", "refresh", "force", "dry_run")


@click.command("get")
@click.argument("urls", nargs=-1, metavar="URL …")
@click.option("-i", "--input", "lists", multiple=True, metavar="FILE|-", help="Also read URLs from these list files.")
@click.option("-o", "--output", metavar="FILE|-", help="Write the bytes to this file; - is stdout (one URL only).")
@click.option("-d", "--directory", metavar="DIR", help="Write the files into this directory; it is created if missing.")
@click.option(
    "--hardlink", is_flag=True, help="With -o/-d: a hard link into the store. Editing the file changes the store."
)
@click.option("--overwrite", is_flag=True, help="With -o/-d: replace existing files.")
@click.option("--sha256", metavar="HEX", help="Expected digest of the bytes (one URL only).")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Send this header too.")
@click.option(
    "--mirror", "mirrors", multiple=True, metavar="URL", help="Alternative URL, tried in order (one URL only)."
)
@click.option("--priority", type=int, default=0, metavar="N", help="Higher first.")
@click.option("--refresh", is_flag=True, help="Ask the servers whether stored files are still current.")
@click.option("--force", is_flag=True, help="Fetch also stored files again, and replace files with -o/-d.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, metavar="N", help="Worker processes [default: 1].")
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
@waiting
@common
def command(call: Call, urls: tuple[str, ...], lists: tuple[str, ...], **how: Any) -> int:
    """Fetch URLs: plan, fetch, verify. Files that are already stored transfer zero bytes.

    With --workers, each process has its own `transfer.concurrency` transfers; below 512 items one process is used.
    Exit 0 when all are stored, 3 when some failed for good, 4 when work is left, 5 when a stored file is damaged and
    could not be fetched again.
    """
    if how["offline"]:
        if how["force"]:
            raise click.UsageError("--force and --offline exclude each other")
        call.flags["offline"] = True
    if not any(how[name] for name in _LONG_WAY):
        from longshore.cli.get.fast_path import all_stored

        if (code := all_stored(call, urls, lists)) is not None:
            return code
    requests = _requests(urls, lists, how)
    _check_places(call, how)
    if how["output"] and len(requests) != 1:
        raise click.UsageError("-o takes exactly one URL; -d takes many")
    if how["output"] == STDOUT and (call.json or how["directory"]):
        raise click.UsageError("-o - writes the bytes to stdout: omit --json and -d")
    if how["dry_run"]:
        from longshore.cli.get.dry_run import preview

        return preview(call, requests, refresh=how["refresh"] or how["force"])
    return _get(call, requests, how)


def _check_places(call: Call, how: dict[str, Any]) -> None:
    """Reject invalid combinations of `-o` and `-d` before anything is fetched."""
    from pathlib import Path  # not loaded by the fast path

    from longshore.depot.output_paths import check_outside, check_target

    for name, option in (("output", "-o"), ("directory", "-d")):
        if how[name] == "":
            raise click.UsageError(f"{option} needs a name; this one is empty")
    if how["output"] == STDOUT:
        if stdout_is_closed():
            raise BadInput("stdout is closed: the bytes would go nowhere", hint="-o FILE gives them a name")
    elif how["output"]:
        check_target(Path(os.path.abspath(how["output"])), call.settings)
    if how["directory"]:
        check_outside(Path(os.path.abspath(how["directory"])), call.settings)


def _requests(urls: Iterable[str], lists: Iterable[str], how: dict[str, Any]) -> list[JobRequest]:
    """Parse all arguments before any work starts; one that is not a URL fails the command."""
    from longshore.domain.identity.requests import download_request

    given = list(urls)
    if len(given) != 1 and (how["sha256"] or how["mirrors"]):
        raise click.UsageError("--sha256 and --mirror take exactly one URL")
    headers = [_header(text) for text in how["headers"]]
    known = {"sha256": how["sha256"], "mirrors": how["mirrors"], "headers": headers, "priority": how["priority"]}
    try:
        requests = [download_request(url, **known) for url in given]
    except NotAUrl as error:
        error.hint = _meant(given)
        raise
    if lists:
        requests += _listed(lists)
    if not requests and not lists:
        raise click.UsageError("Missing argument 'URL …'.")
    return requests


def _meant(given: Iterable[str]) -> str | None:
    """Return a hint for an argument that is not a URL, if there is one."""
    word = next((one for one in given if "://" not in one), "")
    if os.path.exists(word):
        return "`longshore add` takes lists, `longshore put` takes files"
    return f"did you mean https://{word}?" if re.match(r"[\w-]+(\.[\w-]+)+(:\d+)?(/\S*)?\Z", word) else None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise BadInput(f"--header takes 'Name: value', not {text!r}")
    return name.strip(), value.strip()


def _listed(lists: Iterable[str]) -> list[JobRequest]:
    from longshore.cli.commands.add import Listed, opened

    requests: list[JobRequest] = []
    with ExitStack() as stack:
        for name in lists:
            listed = Listed(name, opened(name, stack), None, None)
            requests += listed
            if listed.bad:
                bad = listed.bad[0]
                raise BadInput(f"{listed.name}:{bad.line}: {bad.message}", hint="`longshore add` skips bad lines")
            if listed.unknown:
                say(f"{listed.name}: {listed.unknown_text()}")
    return requests


def _get(call: Call, requests: list[JobRequest], how: dict[str, Any]) -> int:
    if how["workers"] < 2 or len(requests) < MANY:
        return _got(call, requests, how)
    from longshore.cli.multiprocess.assign_jobs import shared

    with shared(call, how) as shares:
        return _got(call, requests, how, shares)


def _got(call: Call, requests: list[JobRequest], how: dict[str, Any], shares: Distributor | None = None) -> int:
    from longshore.cli.commands.run import without_ledger
    from longshore.cli.get.fast_path import counts
    from longshore.cli.get.place import place_results
    from longshore.cli.output.event_output import event_printer, next_steps, summary_text
    from longshore.cli.output.progress import show_progress
    from longshore.domain.kinds import TERMINAL

    with call.depot(create=True) as depot:
        with show_progress(call, event_printer(call, results=None if how["output"] == STDOUT else True)) as (
            score,
            listen,
        ):
            score.total = len(requests)
            try:
                got = depot.get(
                    requests,
                    refresh=how["refresh"],
                    force=how["force"],
                    max_wait_s=how["max_wait"],
                    on_note=shares.attend(listen) if shares else listen,
                    handle_signals=True,
                    helpers=shares,
                )
            except Unavailable as away:
                return without_ledger(call, away, depot.aio.runner.result)
            if shares:
                shares.tell_rest(got, depot.ledger.now())
        lost: list[Got] = []  # recorded as stored, but damaged
        placed = place_results(call, depot, requests, got, how, lost)
        score.held -= sum(one.held_before for one in lost)
        score.failed += len(lost)
    if call.json:
        held = sum(one.held_before and one.ok for one in got) - sum(one.held_before for one in lost)
        call.output.record("summary", counts([one.status.value for one in got], held) | {"bytes": score.bytes})
    elif call.verbosity >= 0:
        say(summary_text(score))
        left = sum(one.status not in TERMINAL for one in got)
        for line in next_steps(score, left, again="the same command") if len(got) > 1 or left else ():
            say(line)
    return _code(depot, got, placed)


def _code(depot: Depot, got: list[Got], placed: int) -> int:
    from longshore.domain.kinds import TERMINAL

    stopped = depot.aio.runner.result.stopped_by
    if stopped in {"SIGINT", "SIGTERM"}:
        return code_of_signal(stopped)
    if any(one.status in TERMINAL and not one.ok for one in got):
        return SOME_FAILED
    if not all(one.ok for one in got):
        return WORK_LEFT
    return placed
