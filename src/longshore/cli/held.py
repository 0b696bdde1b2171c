"""`get` of what is held already: found in a few looks, before anything is loaded that could fetch.

Only ever answers "all of it is held". Whatever else there is to say, the long way says it, and does it.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from longshore.cli.program import OK
from longshore.domain.plain import are_plain, plain_key
from longshore.domain.states import DOWNLOAD, Status
from longshore.ledger.glance import Glance, Held, Row, glance
from longshore.lists.plain import plain_urls
from longshore.store.layout import found_layout, sizes, wanted_layout

if TYPE_CHECKING:
    from longshore.cli.options import Call
    from longshore.config import Settings
    from longshore.domain.scope import Scope

AT_ONCE: Final = 5_000  # keys in one question
FIRST: Final = 200  # in the first one, which most lists with something new in them do not get past
_POINTER: Final = Held._fields.index("pointer")
_SIZE: Final = Held._fields.index("size_bytes")


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


def _held(settings: Settings, scope: Scope, urls: Sequence[str]) -> list[Row] | None:
    """Give what the ledger says of all that these URLs name, if every one is held and its bytes are there."""
    if "://" in settings.ledger or "://" in settings.store or "dedupe.revalidate" in settings.origins:
        return None  # elsewhere, or with a policy that is still to be read
    with ExitStack() as stack:
        ledger = stack.enter_context(glance(settings.ledger))
        try:
            root = os.open(settings.store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, root)
            if ledger is None or found_layout(root) != wanted_layout(settings.shard.width):
                return None
            return _held_below(ledger, root, scope, list(dict.fromkeys(urls)))
        except OSError:  # whoever opens the store properly says what is wrong with it
            return None


def _held_below(ledger: Glance, root: int, scope: Scope, urls: Sequence[str]) -> list[Row] | None:
    held: list[Row] = []
    for batch in _batches(urls):
        rows = ledger.held(scope, DOWNLOAD, [plain_key(url) for url in batch])
        if rows is None or sizes(root, scope, [row[_POINTER] for row in rows]) != [row[_SIZE] for row in rows]:
            return None
        held += rows
    return held


def _batches(urls: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut a list, from its end: what is new in it was mostly written last."""
    end, size = len(urls), FIRST
    while end > 0:
        yield urls[max(0, end - size) : end]
        end, size = end - size, AT_ONCE


def _tell(call: Call, urls: Sequence[str], rows: Iterable[Row]) -> None:
    """Say what `get` says of what is held."""
    if not call.json and call.verbosity < 0:
        return
    named = {row[0]: Held._make(row) for row in rows}
    held = [named[plain_key(url)] for url in urls]
    _tell_each(call, urls, held)
    if call.json:
        call.output.record("summary", counts([one.status for one in held], len(held)) | {"bytes": 0})
        return
    from longshore.cli.output import say
    from longshore.cli.telling import summary_text
    from longshore.cli.watching import Score

    say(summary_text(Score(held=len(held))))


def _tell_each(call: Call, urls: Sequence[str], held: Sequence[Held]) -> None:
    from longshore.cli.telling import teller
    from longshore.domain.notes import Note, held_facts
    from longshore.domain.redaction import safe_url
    from longshore.ledger.connection import wall_clock

    tell, now, root = teller(call), wall_clock(), os.path.realpath(call.settings.store)
    for url, one in zip(urls, held, strict=True):
        facts = held_facts(one.artifact_id, one.sha256, one.size_bytes, f"{root}/{one.pointer}", one.attempts)
        tell(Note("held", now, call.scope, one.job_id, safe_url(url), facts))


def counts(statuses: Iterable[str], held: int) -> dict[str, Any]:
    """Give the fields of the summary of a `get`."""
    found = Counter(statuses)
    jobs = {status.value: found[status.value] for status in Status}
    return {"items": found.total(), "held": held, **jobs, "jobs": jobs}
