"""gc: what no row names goes to quarantine, and what was there for longer than the grace is removed.

The order is the reconciler's: out of reach first, then the ledger is read again, then it is put back or stays away. So a
blob that is being published at this very moment is never lost: its intent was committed before it got its name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from longshore import failpoints
from longshore.domain.model import SECOND, Scope
from longshore.engine.questions import referenced
from longshore.errors import StoreError

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Held, Store

UNNAMED: Final = "no row names it"
failpoints.declare("gc.quarantined", "gc.removed")


@dataclass(frozen=True, slots=True)
class Collected:
    """One blob that nothing refers to, and what became of it."""

    scope: Scope
    sha256: str
    size_bytes: int
    action: str  # quarantined | removed | would_quarantine | would_remove
    why: str


@dataclass(slots=True)
class Collection:
    """What a collection came to."""

    items: list[Collected] = field(default_factory=list)
    bytes: int = 0  # removed


def collect(ledger: Ledger, store: Store, *, grace_s: float, dry_run: bool = False) -> Collection:
    """Quarantine what is unreferenced; remove what has been in quarantine for longer than the grace."""
    found = Collection()
    now = ledger.now()
    if not dry_run:
        give_back(ledger, store)
        with contextlib.suppress(StoreError):  # not every server lists unfinished uploads
            store.collect(grace_s)
    for old in list(store.quarantined()):
        age_s = (now - old.at) / SECOND
        if age_s < grace_s:
            continue
        if not dry_run:
            store.forget(old.scope, old.name)
            failpoints.hit("gc.removed")
        found.bytes += old.size_bytes
        action = "would_remove" if dry_run else "removed"
        why = f"in quarantine for {age_s / 3600:.1f} h"
        found.items.append(Collected(old.scope, old.sha256 or "", old.size_bytes, action, why))
    for held in _unreferenced(ledger, store):
        if not dry_run and not _put_away(ledger, store, held, now):
            continue
        action = "would_quarantine" if dry_run else "quarantined"
        found.items.append(Collected(held.scope, held.sha256, held.size_bytes, action, UNNAMED))
    return found


def give_back(ledger: Ledger, store: Store) -> None:
    """Put back what a row names after all: a crash came between taking it away and reading the ledger again."""
    for old in list(store.quarantined()):
        if old.sha256 is None or old.why != UNNAMED or store.stat(old.scope, old.sha256) is not None:
            continue
        if ledger.read(referenced, old.scope, [old.sha256]):
            store.restore(old.scope, old.name)


def _unreferenced(ledger: Ledger, store: Store) -> Iterator[Held]:
    page: list[Held] = []
    for held in store.walk():
        page.append(held)
        if len(page) == 500:
            yield from _unknown(ledger, page)
            page = []
    yield from _unknown(ledger, page)


def _unknown(ledger: Ledger, page: list[Held]) -> list[Held]:
    groups: dict[Scope, list[Held]] = {}
    for held in page:
        groups.setdefault(held.scope, []).append(held)
    unknown = []
    for scope, group in groups.items():
        named = ledger.read(referenced, scope, [held.sha256 for held in group])
        unknown += [held for held in group if held.sha256 not in named]
    return unknown


def _put_away(ledger: Ledger, store: Store, held: Held, now: int) -> bool:
    name = store.quarantine(held.scope, held.pointer, UNNAMED, at=now)
    failpoints.hit("gc.quarantined")
    if name is None:
        return False
    if _unknown(ledger, [held]):
        return True
    store.restore(held.scope, name)
    return False
