"""`longshore add`: plan from lists."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from longshore.cli.options import Call, common
from longshore.cli.output.writer import say
from longshore.cli.run_command import OK, SOME_FAILED
from longshore.cli.standard_input import stdin_bytes
from longshore.errors import BadInput

if TYPE_CHECKING:
    from concurrent.futures import Future

    from longshore.domain.model import JobRequest, Planned
    from longshore.ledger import Ledger
    from longshore.ledger.operations.planning import Again
    from longshore.lists import BadLine
    from longshore.worker.replan_lost import Sizes

    Held = Callable[[list[JobRequest], list[Planned]], list[Planned]]

FIRST, BATCH = 1_250, 10_000  # requests in one transaction, ever more: short lists are written while they are read
FORMATS = ("urls", "aria2", "jsonl", "csv", "metalink", "openalex", "unpaywall", "arxiv", "fetch", "sums", "parquet")


@click.command("add")
@click.argument("files", nargs=-1, required=True, metavar="FILE|- …")
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), help="The lists' format [default: detected from the content]."
)
@click.option("--base-url", metavar="URL", help="Base URL of the names in a checksum list.")
@click.option("--retry-failed", is_flag=True, help="Make new jobs for items that failed before.")
@click.option("--refresh", is_flag=True, help="Make new jobs also for items that are already stored.")
@click.option("--dry-run", is_flag=True, help="Read and check; plan nothing.")
@common
def command(
    call: Call,
    files: tuple[str, ...],
    format_: str | None,
    base_url: str | None,
    *,
    retry_failed: bool,
    refresh: bool,
    dry_run: bool,
) -> int:
    """Plan jobs from lists: URL lines, JSONL, CSV, aria2 input, Metalink, OpenAlex, Unpaywall, arXiv ids, BagIt, Parquet.

    An invalid line is reported with its number and skipped. Adding the same list again is harmless.
    From a manifest of `longshore export`, downloads are planned; uploads and other jobs are skipped.
    """
    again: Again = "always" if refresh else "failed" if retry_failed else "never"
    with ExitStack() as stack:
        streams = [(name, opened(name, stack)) for name in files]
        lists = [Listed(name, stream, format_, base_url) for name, stream in streams]
        counts = _check(lists) if dry_run else _plan(call, lists, again)
    counts["refused"] = sum(_report(call, one) for one in lists)
    counts["passed_over"] = sum(one.passed_over for one in lists)
    if call.json:
        call.output.record("summary", {"dry_run": dry_run, **counts})
    elif call.verbosity >= 0:
        words = "{readable} readable" if dry_run else "{new} new, {known} known"
        words += ", {refused} refused" + (", {passed_over} no downloads" if counts["passed_over"] else "")
        words += ", {contradictions} contradicting others" if counts.get("contradictions") else ""
        call.output.text(words.format(**counts))
    return SOME_FAILED if counts["refused"] else OK


class Listed:
    """One list while it is read: yields its requests and collects its invalid lines."""

    KEPT = 1_000
    SHOWN = 20  # to a person

    def __init__(self, name: str, stream: BinaryIO, format_: str | None, base_url: str | None) -> None:
        from longshore.lists import read_list

        self.name = "stdin" if name == "-" else name
        self.bad: list[BadLine] = []
        self.bad_count = 0
        self.passed_over = 0
        self.unknown: Counter[str] = Counter()
        try:
            self._items = read_list(stream, format_, base_url=base_url, sums=_sums_beside(name), unknown=self.unknown)
        except BadInput as error:
            raise BadInput(f"{self.name}: {error}", hint=error.hint) from None

    def __iter__(self) -> Iterator[JobRequest]:
        from longshore.lists import BadLine, NoDownload

        try:
            for item in self._items:
                if isinstance(item, NoDownload):
                    self.passed_over += 1
                elif isinstance(item, BadLine):
                    self.bad_count += 1
                    if len(self.bad) < self.KEPT:
                        self.bad.append(item)
                else:
                    yield item
        except BadInput as error:
            raise BadInput(f"{self.name}: {error}", hint=error.hint) from None

    def unknown_text(self) -> str:
        """Return a message about unused fields, the most frequent first."""
        names = [f"{name[:40]!r} ({count})" for name, count in self.unknown.most_common(5)]
        return "fields that are not known were not used: " + ", ".join(names) + (" …" if len(self.unknown) > 5 else "")


def opened(name: str, stack: ExitStack) -> BinaryIO:
    """Open a list by its name; `-` is stdin."""
    if name == "-":
        return stdin_bytes()
    try:
        return stack.enter_context(open(name, "rb"))
    except FileNotFoundError:
        if "://" in name:
            raise BadInput(f"no such file: {name}", hint="add takes lists; `longshore get` takes URLs") from None
        raise BadInput(f"no such file: {name}") from None
    except IsADirectoryError:
        raise BadInput(f"{name} is a directory", hint="`longshore adopt` takes directories") from None


def _sums_beside(name: str) -> dict[str, str] | None:
    """Read the manifest of the bag that a fetch.txt belongs to."""
    manifest = os.path.join(os.path.dirname(name), "manifest-sha256.txt")
    if os.path.basename(name) != "fetch.txt" or not os.path.isfile(manifest):
        return None
    with open(manifest, encoding="utf-8") as file:
        pairs = (line.rstrip("\r\n").split(None, 1) for line in file if line.strip())
        return {pair[1]: pair[0] for pair in pairs if len(pair) == 2}


def _check(lists: list[Listed]) -> dict[str, int]:
    return {"readable": sum(1 for one in lists for _ in one)}


def _plan(call: Call, lists: list[Listed], again: Again) -> dict[str, int]:
    """Plan in batches; read the next batch while one is being written."""
    from longshore.depot.signals import rare_collections

    counts = {"new": 0, "known": 0, "contradictions": 0}
    with rare_collections(ours=True), ExitStack() as stack:
        ledger = stack.enter_context(call.ledger(create=True, bulk=True))
        held = _held(call, ledger, stack) if again != "always" else None
        items = chain.from_iterable(lists)
        written: tuple[list[JobRequest], Future[list[Planned]]] | None = None
        size = FIRST
        while batch := list(islice(items, size)):
            if written is not None:
                _count(call, counts, held, *written)
            written = batch, ledger.plan_begun(call.scope, batch, again=again)
            size = min(2 * size, BATCH)
        if written is not None:
            _count(call, counts, held, *written)
    return counts


def _count(
    call: Call, counts: dict[str, int], held: Held | None, batch: list[JobRequest], planning: Future[list[Planned]]
) -> None:
    made = planning.result()
    if held is not None:
        made = held(batch, made)
    new = sum([one.created for one in made])
    counts["new"] += new
    counts["known"] += len(made) - new
    if call.json:
        _tell_planned(call, batch, made)
    _tell_contradictions(call, counts, batch, made)


def _tell_contradictions(call: Call, counts: dict[str, int], batch: list[JobRequest], made: list[Planned]) -> None:
    """Report items whose expectations of a URL differ from another job's; each was planned as a separate job."""
    from longshore.domain.policy.redaction import safe_url

    for request, one in zip(batch, made, strict=True):
        if one.contradicts is None:
            continue
        counts["contradictions"] += 1
        if not call.json and call.verbosity > -2 and counts["contradictions"] <= Listed.SHOWN:
            say(
                f"{safe_url(request.url or '')}: another job of this URL expects another {one.contradicts}; both are kept"
            )


def _held(call: Call, ledger: Ledger, stack: ExitStack) -> Held:
    """Return a function that plans jobs again whose bytes are lost. The store is opened on first use."""
    from longshore.worker.replan_lost import DONE, plan_lost_again

    @functools.cache
    def sizes() -> Sizes | None:
        if "://" in call.settings.store:  # remote: one request per blob would be too slow
            return None
        from longshore.depot.owned_store import open_own_store

        store = open_own_store(call.settings, ledger)
        stack.callback(store.close)
        return store.sizes

    def held(batch: list[JobRequest], made: list[Planned]) -> list[Planned]:
        if not any(one.status in DONE for one in made):
            return made
        return plan_lost_again(ledger, sizes(), call.scope, batch, made)

    return held


def _tell_planned(call: Call, batch: list[JobRequest], made: list[Planned]) -> None:
    from longshore.domain.policy.redaction import safe_url

    for request, one in zip(batch, made, strict=True):
        facts: dict[str, Any] = {"job_id": one.job_id, "url": safe_url(request.url or ""), "created": one.created}
        if one.contradicts is not None:
            facts["contradicts"] = one.contradicts
        call.output.record("planned", facts | {"status": one.status.value}, flush=False)
    sys.stdout.flush()


def _report(call: Call, listed: Listed) -> int:
    told = listed.bad if call.json else listed.bad[: listed.SHOWN]
    for bad in told:
        if call.json:
            call.output.record(
                "refused", {"source": listed.name, "line": bad.line, "message": bad.message}, flush=False
            )
        elif call.verbosity > -2:
            say(f"{listed.name}:{bad.line}: {bad.message}")
    if listed.unknown and call.verbosity > -2:
        say(f"{listed.name}: {listed.unknown_text()}")
    if listed.bad_count > len(told) and call.verbosity > -2:
        say(f"{listed.name}: … and {listed.bad_count - len(told)} more")
    return listed.bad_count
