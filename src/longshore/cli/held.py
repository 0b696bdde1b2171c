"""`get` of what is held already: found in a few looks, before anything is loaded that could fetch.

Only ever answers "all of it is held". Whatever else there is to say, the long way says it, and does it.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from longshore.cli.program import OK
from longshore.domain.plain import are_plain, plain_key
from longshore.domain.states import DOWNLOAD, Status
from longshore.ledger.glance import Glance, HeldRow, glance
from longshore.lists.plain import plain_urls
from longshore.store.layout import found_layout, sizes, wanted_layout

if TYPE_CHECKING:
    from longshore.cli.options import Call
    from longshore.config import Settings
    from longshore.domain.scope import Scope

AT_ONCE: Final = 5_000  # keys in one question
FIRST: Final = 200  # in the first one, which most lists with something new in them do not get past


def all_held(call: Call, urls: Sequence[str], lists: Sequence[str]) -> int | None:
    """Tell that all of this is held, and give the exit code; None where the long way must be gone."""
    collecting = gc.isenabled()
    gc.disable()  # a look makes no cycles, and a hundred thousand objects that the collector would turn over
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
    """Give the URLs that are meant, if there is nothing about them to be parsed or refused."""
    wanted = list(urls)
    if not are_plain(wanted):
        return None
    for name in lists:
        listed = None if name == "-" else plain_urls(name)
        if listed is None:
            return None
        wanted += listed
    return wanted


def _held(settings: Settings, scope: Scope, urls: Sequence[str]) -> dict[str, HeldRow] | None:
    """Give what the ledger says of each URL, if every one is held and its bytes are there."""
    if "://" in settings.ledger or "://" in settings.store or "dedupe.revalidate" in settings.origins:
        return None  # elsewhere, or with a policy that is still to be read
    held: dict[str, HeldRow] = {}
    with glance(Path(settings.ledger)) as ledger:
        if ledger is None:
            return None
        try:
            root = os.open(settings.store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            if found_layout(root) != wanted_layout(settings.shard.width):
                return None
            for batch in _batches(list(dict.fromkeys(urls))):
                found = _held_batch(ledger, root, scope, batch)
                if found is None:
                    return None
                held |= found
        except OSError:
            return None
        finally:
            os.close(root)
    return held


def _batches(urls: list[str]) -> Iterator[list[str]]:
    """Cut a list, from its end: what is new in it was mostly written last."""
    end, size = len(urls), FIRST
    while end > 0:
        yield urls[max(0, end - size) : end]
        end, size = end - size, AT_ONCE


def _held_batch(ledger: Glance, root: int, scope: Scope, urls: Sequence[str]) -> dict[str, HeldRow] | None:
    keys = {plain_key(url): url for url in urls}
    rows = ledger.held(scope, DOWNLOAD, list(keys))
    if rows is None or sizes(root, scope, [row.pointer for row in rows]) != [row.size_bytes for row in rows]:
        return None
    return {keys[row.key]: row for row in rows}


def _tell(call: Call, urls: Sequence[str], held: dict[str, HeldRow]) -> None:
    """Say what `get` says of what is held."""
    if call.json or call.verbosity >= 0:
        _tell_each(call, urls, held)
    if call.json:
        statuses = [held[url].status for url in urls]
        call.output.record("summary", counts(statuses, len(statuses)) | {"bytes": 0})
    elif call.verbosity >= 0:
        from longshore.cli.output import say
        from longshore.cli.telling import summary_text
        from longshore.cli.watching import Score

        say(summary_text(Score(held=len(urls))))


def _tell_each(call: Call, urls: Sequence[str], held: dict[str, HeldRow]) -> None:
    from longshore.cli.telling import teller
    from longshore.domain.notes import Note, held_facts
    from longshore.domain.redaction import safe_url
    from longshore.ledger.connection import wall_clock

    tell, now, root = teller(call), wall_clock(), os.path.realpath(call.settings.store)
    for url in urls:
        row = held[url]
        facts = held_facts(row.artifact_id, row.sha256, row.size_bytes, f"{root}/{row.pointer}", row.attempts)
        tell(Note("held", now, call.scope, row.job_id, safe_url(url), facts))


def counts(statuses: Iterable[str], held: int) -> dict[str, Any]:
    """Give the fields of the summary of a `get`."""
    found = Counter(statuses)
    jobs = {status.value: found[status.value] for status in Status}
    return {"items": found.total(), "held": held, **jobs, "jobs": jobs}
