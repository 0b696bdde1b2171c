"""Fast path for `get`: if every URL is already stored, answer without loading the worker.

Only ever answers "all of it is held". In every other case it returns None, and the regular path handles the request.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from longshore.cli.run_command import OK
from longshore.domain.identity.plain_urls import are_plain, plain_key
from longshore.domain.kinds import DOWNLOAD, Status
from longshore.ledger.queries.fast_lookup import FastLookup, Row, StoredResult, open_fast_lookup
from longshore.lists.fast_urls import plain_urls
from longshore.store.local.layout import found_layout, sizes, wanted_layout

if TYPE_CHECKING:
    from longshore.cli.options import Call
    from longshore.config import Settings
    from longshore.domain.scope import Scope

AT_ONCE: Final = 5_000  # keys in one query
FIRST: Final = 200  # in the first query, which is the only one for most lists with new URLs
NONE_REFUSED: Final = {"refused": 0, "without_file": 0}
_POINTER: Final = StoredResult._fields.index("pointer")
_SIZE: Final = StoredResult._fields.index("size_bytes")


def all_stored(call: Call, urls: Sequence[str], lists: Sequence[str]) -> int | None:
    """Report all URLs as held and return the exit code; None if the regular path must be taken."""
    collecting = gc.isenabled()
    gc.disable()  # this code makes no cycles, but 100,000 objects that each collection would visit
    try:
        wanted = _wanted(urls, lists)
        held = _held(call.settings, call.scope, wanted) if wanted and call.verbosity <= 1 else None
        if wanted is None or held is None:
            return None
        _tell(call, wanted, held)
        return OK
    finally:
        if collecting:
            gc.enable()


def _wanted(urls: Sequence[str], lists: Sequence[str]) -> list[str] | None:
    """Return the URLs of the request if they need no parsing and no validation."""
    wanted = list(urls)
    if not are_plain(wanted):
        return None
    for name in lists:
        listed = None if name == "-" else plain_urls(name)
        if listed is None:
            return None
        wanted += listed
    return wanted


def _held(settings: Settings, scope: Scope, urls: Sequence[str]) -> list[Row] | None:
    """Return the ledger's rows for these URLs if every one is held and its blob exists."""
    if "://" in settings.ledger or "://" in settings.store or "dedupe.revalidate" in settings.origins:
        return None  # a remote depot, or one whose policy is not read yet
    if settings.credentials.named or settings.network.netrc is not None or settings.network.cookies is not None:
        return None  # a login is part of a job's key
    with ExitStack() as stack:
        ledger = stack.enter_context(open_fast_lookup(settings.ledger))
        try:
            root = os.open(settings.store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, root)
            if ledger is None or found_layout(root) != wanted_layout(settings.shard.width):
                return None
            return _held_below(ledger, root, scope, list(dict.fromkeys(urls)))
        except OSError:  # the regular path reports the store's error
            return None


def _held_below(ledger: FastLookup, root: int, scope: Scope, urls: Sequence[str]) -> list[Row] | None:
    held: list[Row] = []
    for batch in _batches(urls):
        rows = ledger.held(scope, DOWNLOAD, [plain_key(url) for url in batch])
        if rows is None or sizes(root, scope, [row[_POINTER] for row in rows]) != [row[_SIZE] for row in rows]:
            return None
        held += rows
    return held


def _batches(urls: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split a list into queries, starting at its end, where new URLs usually are."""
    end, size = len(urls), FIRST
    while end > 0:
        yield urls[max(0, end - size) : end]
        end, size = end - size, AT_ONCE


def _tell(call: Call, urls: Sequence[str], rows: Iterable[Row]) -> None:
    """Write the output of `get` for stored files."""
    if not call.json and call.verbosity < 0:
        return
    named = {row[0]: StoredResult._make(row) for row in rows}
    once = list(dict.fromkeys(urls))
    held = [named[plain_key(url)] for url in once]
    _tell_each(call, once, held)
    if call.json:
        summary = counts([one.status for one in held], len(held), len(urls)) | NONE_REFUSED | {"bytes": 0}
        call.output.record("summary", summary)
        return
    from longshore.cli.output.event_output import doubles_text, summary_text
    from longshore.cli.output.progress import ProgressCounts
    from longshore.cli.output.writer import say

    say(summary_text(ProgressCounts(held=len(held))) + doubles_text(len(urls) - len(once)))


def _tell_each(call: Call, urls: Sequence[str], held: Sequence[StoredResult]) -> None:
    from longshore.cli.output.event_output import event_printer
    from longshore.domain.policy.redaction import safe_url
    from longshore.domain.run_events import RunEvent, stored_facts
    from longshore.ledger.backends.sqlite.connection import wall_clock

    tell, now, root = event_printer(call), wall_clock(), os.path.realpath(call.settings.store)
    for url, one in zip(urls, held, strict=True):
        facts = stored_facts(one.artifact_id, one.sha256, one.size_bytes, f"{root}/{one.pointer}", one.attempts)
        tell(RunEvent("held", now, call.scope, one.job_id, safe_url(url), facts))


def counts(statuses: Iterable[str], held: int, items: int) -> dict[str, Any]:
    """Return the fields of a `get` summary: the items that were asked for, and the jobs that they are."""
    found = Counter(statuses)
    jobs = {status.value: found[status.value] for status in Status}
    return {"items": items, "held": held, **jobs, "jobs": jobs}
