"""gc: move unreferenced blobs to quarantine, and remove blobs that were there longer than the grace period.

The order is the reconciler's: quarantine first, then read the ledger again, then put the blob back or leave it.
So a blob that is being published at this moment is never lost: its intent was committed before the blob got its name.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from longshore import failpoints
from longshore.domain.model import SECOND, Scope
from longshore.errors import StoreError
from longshore.ledger.queries.due_work import referenced, settled_pointers

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Store, StoredBlob

log = logging.getLogger(__name__)
UNNAMED: Final = "no row names it"
failpoints.declare("gc.quarantined", "gc.removed")


@dataclass(frozen=True, slots=True)
class Collected:
    """One unreferenced blob, and the action taken."""

    scope: Scope
    sha256: str
    size_bytes: int
    action: str  # quarantined | removed | would_quarantine | would_remove | failed
    why: str


@dataclass(slots=True)
class Collection:
    """The result of a collection."""

    items: list[Collected] = field(default_factory=list)
    bytes: int = 0  # removed

    @property
    def failed(self) -> int:
        """The number of items that could not be moved or removed."""
        return sum(item.action == "failed" for item in self.items)


def collect(ledger: Ledger, store: Store, *, grace_s: float, dry_run: bool = False) -> Collection:
    """Quarantine unreferenced blobs; remove blobs that were in quarantine longer than the grace period.

    An item that cannot be moved or removed is reported as `failed`, and the next one follows.
    """
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
        action, why = "would_remove" if dry_run else "removed", f"in quarantine for {age_s / 3600:.1f} h"
        try:
            if not dry_run:
                store.forget(old.scope, old.name)
                failpoints.hit("gc.removed")
            found.bytes += old.size_bytes
        except StoreError as error:
            action, why = "failed", str(error)
        found.items.append(Collected(old.scope, old.sha256 or "", old.size_bytes, action, why))
    for held in _unreferenced(ledger, store):
        action, why = "would_quarantine" if dry_run else "quarantined", UNNAMED
        try:
            if not dry_run and not _put_away(ledger, store, held, now):
                continue
        except StoreError as error:
            action, why = "failed", str(error)
        found.items.append(Collected(held.scope, held.sha256, held.size_bytes, action, why))
    return found


def give_back(ledger: Ledger, store: Store) -> None:
    """Put referenced blobs back: a crash may have come between quarantine and the second read of the ledger."""
    for old in list(store.quarantined()):
        if old.sha256 is None or old.why != UNNAMED or store.stat(old.scope, old.sha256) is not None:
            continue
        if ledger.read(referenced, old.scope, [old.sha256]):
            try:
                store.restore(old.scope, old.name)
            except StoreError as error:  # the others come back, and the next pass tries again
                log.warning("blob %s could not be put back from quarantine: %s", old.sha256, error)


def _unreferenced(ledger: Ledger, store: Store) -> Iterator[StoredBlob]:
    page: list[StoredBlob] = []
    for held in store.walk():
        page.append(held)
        if len(page) == 500:
            yield from unnamed(ledger, store, page)
            page = []
    yield from unnamed(ledger, store, page)


def unnamed(ledger: Ledger, store: Store, page: list[StoredBlob]) -> list[StoredBlob]:
    """Return the blobs that no row and no open intent names, and second files of a blob that a row names elsewhere."""
    groups: dict[Scope, list[StoredBlob]] = {}
    for held in page:
        groups.setdefault(held.scope, []).append(held)
    unknown = []
    for scope, group in groups.items():
        named = ledger.read(referenced, scope, [held.sha256 for held in group])
        unknown += [held for held in group if held.sha256 not in named]
        unknown += _second_files(ledger, store, scope, [held for held in group if held.sha256 in named])
    return unknown


def _second_files(ledger: Ledger, store: Store, scope: Scope, group: list[StoredBlob]) -> list[StoredBlob]:
    """Return files that no row names although their hash is known; what the rows name must be there."""
    pointers = ledger.read(settled_pointers, scope, [held.sha256 for held in group])
    second = [held for held in group if held.pointer not in pointers.get(held.sha256, {held.pointer})]
    return [held for held in second if set(store.sizes(scope, list(pointers[held.sha256]))) == {held.size_bytes}]


def _put_away(ledger: Ledger, store: Store, held: StoredBlob, now: int) -> bool:
    name = store.quarantine(held.scope, held.pointer, UNNAMED, at=now)
    failpoints.hit("gc.quarantined")
    if name is None:
        return False
    if unnamed(ledger, store, [held]):
        return True
    store.restore(held.scope, name)
    return False
