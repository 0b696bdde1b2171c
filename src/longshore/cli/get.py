"""`longshore get`: have these things."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import click

from longshore.cli.options import Call, common, waiting
from longshore.cli.output import say
from longshore.cli.program import SOME_FAILED, WORK_LEFT, code_of_signal
from longshore.errors import BadInput, NotAUrl

if TYPE_CHECKING:
    from longshore.cli.shares import Shares
    from longshore.depot import Depot, Got
    from longshore.domain.model import JobRequest

STDOUT = "-"
MANY: Final = 512  # items from which on several processes are worth their start
# With any of these it does not suffice that something is held.
_LONG_WAY: Final = ("output", "directory", "sha256", "headers", "mirrors", "priority", "refresh", "force", "dry_run")


@click.command("get")
@click.argument("urls", nargs=-1, metavar="URL …")
@click.option("-i", "--input", "lists", multiple=True, metavar="FILE|-", help="Also what these lists name.")
@click.option(
    "-o", "--output", metavar="FILE|-", help="Give the bytes this name; - writes them to stdout (one URL only)."
)
@click.option("-d", "--directory", metavar="DIR", help="Give the bytes names in this directory; it is made if need be.")
@click.option(
    "--hardlink", is_flag=True, help="With -o/-d: a hard link into the store. Whoever edits it edits the store."
)
@click.option("--overwrite", is_flag=True, help="With -o/-d: replace files that are there.")
@click.option("--sha256", metavar="HEX", help="Digest that the bytes must have (one URL only).")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Send this header too.")
@click.option("--mirror", "mirrors", multiple=True, metavar="URL", help="Where else it is, in order (one URL only).")
@click.option("--priority", type=int, default=0, metavar="N", help="Higher first.")
@click.option("--refresh", is_flag=True, help="Ask the servers whether what is held is still current.")
@click.option("--force", is_flag=True, help="Fetch again whatever is held, and replace files with -o/-d.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, metavar="N", help="Worker processes [default: 1].")
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@waiting
@common
def command(call: Call, urls: tuple[str, ...], lists: tuple[str, ...], **how: Any) -> int:
    """Fetch URLs: plan, fetch, verify. What is held already moves zero bytes.

    With --workers, each process has `transfer.concurrency` transfers of its own; fewer than 512 things need one only.
    Exit 0 when all are held, 3 when some failed for good, 4 when work is left, 5 when a stored file is damaged and could
    not be fetched again.
    """
    if how["offline"]:
        call.flags["offline"] = True
    if not any(how[name] for name in _LONG_WAY):
        from longshore.cli.held import all_held

        if (code := all_held(call, urls, lists)) is not None:
            return code
    requests = _requests(urls, lists, how)
    if how["output"] and len(requests) != 1:
        raise click.UsageError("-o takes exactly one URL; -d takes many")
    if how["output"] == STDOUT and (call.json or how["directory"]):
        raise click.UsageError("-o - gives stdout to the bytes: leave out --json and -d")
    if how["dry_run"]:
        from longshore.cli.preview import preview

        return preview(call, requests, refresh=how["refresh"] or how["force"])
    return _get(call, requests, how)


def _requests(urls: Iterable[str], lists: Iterable[str], how: dict[str, Any]) -> list[JobRequest]:
    """Read all arguments before anything is done: one that is no URL stops the rest."""
    from longshore.domain.requests import download_request

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
    """Guess what a word should have been that is no URL."""
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
    from longshore.cli.add import Listed, opened

    requests: list[JobRequest] = []
    with ExitStack() as stack:
        for name in lists:
            listed = Listed(name, opened(name, stack), None, None)
            requests += listed
            if listed.bad:
                bad = listed.bad[0]
                raise BadInput(f"{listed.name}:{bad.line}: {bad.message}", hint="`longshore add` skips bad lines")
    return requests


def _get(call: Call, requests: list[JobRequest], how: dict[str, Any]) -> int:
    if how["workers"] < 2 or len(requests) < MANY:
        return _got(call, requests, how)
    from longshore.cli.shares import shared

    with shared(call, how) as shares:
        return _got(call, requests, how, shares)


def _got(call: Call, requests: list[JobRequest], how: dict[str, Any], shares: Shares | None = None) -> int:
    from longshore.cli.held import counts
    from longshore.cli.placing import place_results
    from longshore.cli.telling import summary_text, teller, what_next
    from longshore.cli.watching import watching
    from longshore.domain.states import TERMINAL

    with call.depot(create=True) as depot:
        with watching(call, teller(call, results=None if how["output"] == STDOUT else True)) as (score, listen):
            score.total = len(requests)
            got = depot.get(
                requests,
                refresh=how["refresh"],
                force=how["force"],
                max_wait_s=how["max_wait"],
                on_note=shares.attend(listen) if shares else listen,
                handle_signals=True,
                helpers=shares,
            )
            if shares:
                shares.tell_rest(got, depot.ledger.now())
        lost: list[Got] = []  # held, as it seemed, and damaged
        placed = place_results(call, depot, requests, got, how, lost)
        score.held -= sum(one.held_before for one in lost)
        score.failed += len(lost)
    if call.json:
        held = sum(one.held_before and one.ok for one in got) - sum(one.held_before for one in lost)
        call.output.record("summary", counts([one.status.value for one in got], held) | {"bytes": score.bytes})
    elif call.verbosity >= 0:
        say(summary_text(score))
        left = sum(one.status not in TERMINAL for one in got)
        for line in what_next(score, left, again="the same command") if len(got) > 1 or left else ():
            say(line)
    return _code(depot, got, placed)


def _code(depot: Depot, got: list[Got], placed: int) -> int:
    from longshore.domain.states import TERMINAL

    stopped = depot.aio.tally.stopped_by
    if stopped in {"SIGINT", "SIGTERM"}:
        return code_of_signal(stopped)
    if any(one.status in TERMINAL and not one.ok for one in got):
        return SOME_FAILED
    if not all(one.ok for one in got):
        return WORK_LEFT
    return placed
