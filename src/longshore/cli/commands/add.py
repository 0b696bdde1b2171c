"""`longshore add`: plan from lists."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click

from longshore.cli.list_input import Listed, list_options, read_lists
from longshore.cli.options import Call, common
from longshore.cli.output.writer import say
from longshore.cli.run_command import OK, SOME_FAILED

if TYPE_CHECKING:
    from concurrent.futures import Future

    from longshore.domain.model import JobRequest, Planned
    from longshore.ledger import Ledger
    from longshore.ledger.operations.planning import Again
    from longshore.worker.replan_lost import Sizes

    Held = Callable[[list[JobRequest], list[Planned]], list[Planned]]

FIRST, BATCH = 1_250, 10_000  # requests in one transaction, ever more: short lists are written while they are read
FORMATS = ("urls", "aria2", "jsonl", "csv", "metalink", "openalex", "unpaywall", "arxiv", "fetch", "sums", "parquet")


@click.command("add")
@click.argument("files", nargs=-1, required=True, metavar="FILE|URL|- …")
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), help="The lists' format [default: detected from the content]."
)
@click.option("--base-url", metavar="URL", help="Base URL of the names in a checksum list.")
@list_options
@click.option("--retry-failed", is_flag=True, help="Make new jobs for items that failed before.")
@click.option("--refresh", is_flag=True, help="Make new jobs also for items that are already stored.")
@click.option("--dry-run", is_flag=True, help="Read and check; plan nothing.")
@common
def command(
    call: Call,
    files: tuple[str, ...],
    format_: str | None,
    base_url: str | None,
    url_column: str | None,
    rejects: str | None,
    run_id: str | None,
    media_type: str | None,
    *,
    retry_failed: bool,
    refresh: bool,
    dry_run: bool,
) -> int:
    """Plan jobs from lists: URL lines, JSONL, CSV, aria2 input, Metalink, OpenAlex, Unpaywall, arXiv ids, BagIt, Parquet.

    A list may be given by its URL; what the server allows to be cached is kept in the depot.
    Lists may be compressed (gzip, bzip2, xz, zstd). Columns and keys are listed in docs/reference/lists.md.
    An invalid line is reported with its number and skipped (exit 3). Works without a file are counted.
    Adding the same list again is harmless.
    From a manifest of `longshore export`, downloads are planned; uploads and other jobs are skipped.
    """
    from longshore.domain.identity.requests import Defaults

    again: Again = "always" if refresh else "failed" if retry_failed else "never"
    options: dict[str, Any] = {"format_": format_, "base_url": base_url, "url_column": url_column, "rejects": rejects}
    options["defaults"] = Defaults(run_id, media_type)
    with read_lists(files, call.settings, **options) as lists:
        counts = _check(lists) if dry_run else _plan(call, lists, again)
    for one in lists:
        one.report(call)
    counts["refused"] = sum(one.bad_count for one in lists)
    counts["without_file"] = sum(one.without_file for one in lists)
    counts["passed_over"] = sum(one.passed_over for one in lists)
    if call.json:
        call.output.record("summary", {"dry_run": dry_run, **counts})
    elif call.verbosity >= 0:
        words = "{readable} readable" if dry_run else "{new} new, {known} known"
        words += ", {refused} refused" + (", {without_file} without a file" if counts["without_file"] else "")
        words += ", {passed_over} no downloads" if counts["passed_over"] else ""
        words += ", {contradictions} contradicting others" if counts.get("contradictions") else ""
        call.output.text(words.format(**counts))
    return SOME_FAILED if counts["refused"] else OK


def _check(lists: list[Listed]) -> dict[str, int]:
    return {"readable": sum(1 for one in lists for _ in one)}


def _plan(call: Call, lists: list[Listed], again: Again) -> dict[str, int]:
    """Plan in batches; read the next batch while one is being written."""
    from longshore.depot.garbage_collector import rare_collections

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
