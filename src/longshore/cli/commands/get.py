"""`longshore get`: fetch URLs, unless they are stored already."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import click

from longshore.cli.list_input import list_options
from longshore.cli.options import Call, apply_running, common, running
from longshore.cli.output.writer import say, stdout_is_closed
from longshore.cli.run_command import OK, SOME_FAILED, WORK_LEFT, code_of_signal
from longshore.errors import BadInput, NotAUrl, Unavailable

if TYPE_CHECKING:
    from longshore.cli.multiprocess.assign_jobs import Distributor
    from longshore.cli.output.progress import ProgressCounts
    from longshore.depot import Depot, Got
    from longshore.domain.identity.requests import Defaults
    from longshore.domain.model import JobRequest

STDOUT = "-"
MANY: Final = 512  # minimum number of items for which several processes pay off
# With any of these options the fast path for stored URLs does not apply.
_LONG_WAY: Final = (
    "output",
    "directory",
    "sha256",
    "headers",
    "mirrors",
    "priority",
    "refresh",
    "force",
    "dry_run",
    "url_column",
    "rejects",
    "media_type",
)


@click.command("get")
@click.argument("urls", nargs=-1, metavar="URL …")
@click.option("-i", "--input", "lists", multiple=True, metavar="FILE|-", help="Also read URLs from these list files.")
@list_options
@click.option("-o", "--output", metavar="FILE|-", help="Write the bytes to this file; - is stdout (one URL only).")
@click.option("-d", "--directory", metavar="DIR", help="Write the files into this directory; it is created if missing.")
@click.option(
    "--template",
    metavar="TEMPLATE",
    help="With -d: file names, e.g. {host}/{name}; the fields are those of `export tree`.",
)
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
@running
@common
def command(call: Call, urls: tuple[str, ...], lists: tuple[str, ...], **how: Any) -> int:
    """Fetch URLs: plan, fetch, verify. Files that are already stored transfer zero bytes.

    With -d, each file is placed when it is done, under the name that the list, the server or the URL gives it; if
    other bytes have that name, the hash is added. With --template, names are made of sha256, name, stem, ext, host,
    work_id, artifact_id, job_id and shard; a / in the template makes a directory.
    With --workers, each process has its own `transfer.concurrency` transfers; below 512 items one process is used.
    Items that failed before are asked for again, as new jobs linked to the failed ones: repeating the command is a retry,
    also of definite failures such as http_404. `add` and `run` leave failures as they are until `longshore retry`.
    Invalid lines of a list are named and skipped; works without a file are counted.
    Exit 0 when all are stored, 3 when some failed for good or were refused (also if work is left), 4 when work is left
    or after `network.max_refusals` refusals in a row, 5 when a stored file is damaged and could not be fetched again.
    """
    if how["offline"] and how["force"]:
        raise click.UsageError("--force and --offline exclude each other")
    _check_template(how)
    apply_running(call, how)
    if not any(how[name] for name in _LONG_WAY):
        from longshore.cli.get.fast_path import all_stored

        if (code := all_stored(call, urls, lists)) is not None:
            return code
    _check_places(call, how)
    requests, refused = _requests(call, urls, lists, how)
    if how["output"] and len(requests) != 1:
        raise click.UsageError("-o takes exactly one URL; -d takes many")
    if how["output"] == STDOUT and (call.json or how["directory"]):
        raise click.UsageError("-o - writes the bytes to stdout: omit --json and -d")
    if how["dry_run"]:
        from longshore.cli.get.dry_run import preview

        return preview(call, requests, refused, refresh=how["refresh"] or how["force"])
    return _get(call, requests, refused, how)


def _check_template(how: dict[str, Any]) -> None:
    """Reject a template that is wrong, or that names no files, before anything is looked up or fetched."""
    if how["template"] is None:
        return
    from longshore.domain.name_template import check_template

    check_template(how["template"])
    if not how["directory"]:
        raise click.UsageError("--template names the files in a directory: name the directory with -d DIR")


def _check_places(call: Call, how: dict[str, Any]) -> None:
    """Reject invalid combinations of `-o` and `-d` before anything is fetched."""
    from pathlib import Path  # not loaded by the fast path

    from longshore.depot.output_paths import check_outside, check_target
    from longshore.domain.places import check_is_path

    for name, option in (("output", "-o"), ("directory", "-d")):
        if how[name] == "":
            raise click.UsageError(f"{option} needs a name; this one is empty")
        check_is_path(option, how[name] or "")
    if how["output"] == STDOUT:
        if stdout_is_closed():
            raise BadInput("stdout is closed: the bytes would go nowhere", hint="-o FILE gives them a name")
    elif how["output"]:
        check_target(Path(os.path.abspath(how["output"])), call.settings)
    if how["directory"]:
        check_outside(Path(os.path.abspath(how["directory"])), call.settings)


def _requests(
    call: Call, urls: Iterable[str], lists: Sequence[str], how: dict[str, Any]
) -> tuple[list[JobRequest], dict[str, int]]:
    """Parse all arguments before any work starts; one that is not a URL fails the command.

    Invalid lines of lists are reported and skipped; also return how many there are.
    """
    from longshore.domain.identity.requests import Defaults, download_request

    given, defaults = list(urls), Defaults(how["run_id"], how["media_type"])
    if len(given) != 1 and (how["sha256"] or how["mirrors"]):
        raise click.UsageError("--sha256 and --mirror take exactly one URL")
    headers = [_header(text) for text in how["headers"]]
    known = {"sha256": how["sha256"], "mirrors": how["mirrors"], "headers": headers, "priority": how["priority"]}
    try:
        requests = [defaults.applied(download_request(url, **known)) for url in given]
    except NotAUrl as error:
        error.hint = error.hint or _meant(given)
        raise
    if not requests and not lists:
        raise click.UsageError("Missing argument 'URL …'.")
    refused = {"refused": 0, "without_file": 0}
    if lists or how["rejects"]:
        requests += _listed(call, lists, how, defaults, refused)
    return requests, refused


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


def _listed(
    call: Call, lists: Sequence[str], how: dict[str, Any], defaults: Defaults, refused: dict[str, int]
) -> list[JobRequest]:
    from longshore.cli.list_input import read_lists

    requests: list[JobRequest] = []
    options: dict[str, Any] = {"url_column": how["url_column"], "rejects": how["rejects"], "defaults": defaults}
    with read_lists(lists, call.settings, **options) as opened:
        for one in opened:
            requests += one
            one.report(call)
            refused["refused"] += one.bad_count
            refused["without_file"] += one.without_file
    return requests


def _get(call: Call, requests: list[JobRequest], refused: dict[str, int], how: dict[str, Any]) -> int:
    if how["workers"] < 2 or len(requests) < MANY:
        return _got(call, requests, refused, how)
    from longshore.cli.multiprocess.assign_jobs import shared

    with shared(call, how) as shares:
        return _got(call, requests, refused, how, shares)


def _got(
    call: Call,
    requests: list[JobRequest],
    refused: dict[str, int],
    how: dict[str, Any],
    shares: Distributor | None = None,
) -> int:
    from longshore.cli.commands.run import without_ledger
    from longshore.cli.get.follow_jobs import FollowedJobs
    from longshore.cli.get.place import Placing, PlacingMeanwhile, place_results
    from longshore.cli.output.event_output import event_printer, tell_stop
    from longshore.cli.output.progress import show_progress
    from longshore.depot.get import job_count

    results = None if how["output"] == STDOUT else not how["directory"]  # -d names each where it is placed
    printer = event_printer(call, results=results)
    with call.depot(create=True) as depot:
        placing = Placing(call, depot, requests, how)
        meanwhile = PlacingMeanwhile(placing, depot, requests) if how["directory"] else None
        with show_progress(call, printer) as (score, listen), meanwhile.running() if meanwhile else nullcontext():
            score.total, followed = job_count(requests), FollowedJobs(depot, score)
            heard = followed.listener(meanwhile.listener(listen) if meanwhile else listen)
            try:
                with followed.running(call):
                    got = depot.get(
                        requests,
                        refresh=how["refresh"],
                        force=how["force"],
                        max_wait_s=how["max_wait"],
                        on_note=shares.attend(heard) if shares else heard,
                        handle_signals=True,
                        helpers=shares,
                    )
            except Unavailable as away:
                return without_ledger(call, away, depot.aio.runner.result)
            if shares:
                shares.tell_rest(got, depot.ledger.now())
        lost: list[Got] = []  # recorded as stored, but damaged
        code = place_results(placing, depot, requests, got, how, lost)
    _summarize(call, got, lost, refused, score, stored_only=not how["output"] and not how["directory"])
    tell_stop(call, score)
    code = _code(depot, got, code, refused=score.refused is not None)
    return SOME_FAILED if refused["refused"] and code in (OK, WORK_LEFT) else code


def _summarize(
    call: Call, got: list[Got], lost: list[Got], refused: dict[str, int], score: ProgressCounts, *, stored_only: bool
) -> None:
    """Report the result; `lost`: recorded as stored, but damaged."""
    from longshore.cli.get.fast_path import counts
    from longshore.cli.output.event_output import doubles_text, next_steps, refused_text, summary_text
    from longshore.domain.kinds import TERMINAL, Status

    jobs = list({one.job_id: one for one in got}.values())  # a list may name an item twice
    gone = {one.job_id for one in lost}
    score.held = sum(one.held_before and one.ok and one.job_id not in gone for one in jobs)
    score.completed = sum(one.ok and not one.held_before and one.job_id not in gone for one in jobs)
    score.failed = sum(one.status is Status.FAILED for one in jobs) + len(gone)
    score.canceled = sum(one.status is Status.CANCELED for one in jobs)
    score.elsewhere = 0  # they are counted above
    if call.json:
        counted = counts([one.status.value for one in jobs], score.held, len(got)) | refused
        call.output.record("summary", counted | {"bytes": score.bytes})
    elif call.verbosity >= 0:
        say(summary_text(score) + refused_text(refused) + doubles_text(len(got) - len(jobs)))
        left = sum(one.status not in TERMINAL for one in jobs)
        for line in next_steps(score, left, again="the same command") if len(jobs) > 1 or left else ():
            say(line)
        if score.completed and sys.stdout.isatty() and stored_only:
            say(
                f"  → stored in {call.settings.depot}; -d DIR also writes files with names, -v shows where they are stored"
            )


def _code(depot: Depot, got: list[Got], placed: int, *, refused: bool) -> int:
    """Return the exit code: a signal wins, then refusals that left work (4), failures (3), and work that is left (4)."""
    from longshore.domain.kinds import TERMINAL

    stopped = depot.aio.runner.result.stopped_by
    if stopped in {"SIGINT", "SIGTERM"}:
        return code_of_signal(stopped)
    if refused and not all(one.status in TERMINAL for one in got):
        return WORK_LEFT
    if any(one.status in TERMINAL and not one.ok for one in got):
        return SOME_FAILED
    if not all(one.ok for one in got):
        return WORK_LEFT
    return placed
