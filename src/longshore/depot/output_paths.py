"""Where bytes may be written outside the store: over plain files only, and never into the depot itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from longshore.depot import derived_settings
from longshore.errors import BadInput
from longshore.store.local.place_outside import check_replaceable

if TYPE_CHECKING:
    from longshore.config import Settings


def check_target(target: Path, settings: Settings) -> None:
    """Raise `BadInput` for a target that must not be written to: a device, a FIFO, the depot's own files."""
    check_replaceable(target)
    check_outside(target, settings)


def check_outside_store(target: str, settings: Settings) -> None:
    """Raise `BadInput` for a directory inside the depot's store, where only blobs belong."""
    place, store = (text.removeprefix("file://") for text in (target, derived_settings.store_place(settings)))
    if "://" in place or "://" in store:
        return
    if Path(os.path.realpath(place)).is_relative_to(os.path.realpath(store)):
        raise BadInput(f"{target} is inside the depot's own store", hint="name a place outside of it")


def check_outside(target: Path, settings: Settings) -> None:
    """Raise `BadInput` for a path inside the depot or its store, or one of the ledger's files."""
    place = os.path.join(os.path.realpath(target.parent), target.name)
    store, ledger = (
        derived_settings.store_place(settings).removeprefix("file://"),
        str(derived_settings.ledger_place(settings)),
    )
    roots = [settings.depot] + ([] if "://" in store else [store])
    inside = any(Path(place).is_relative_to(os.path.realpath(root)) for root in roots)
    if inside or ("://" not in ledger and place.startswith(os.path.realpath(ledger))):
        raise BadInput(f"{target} is inside the depot", hint="name a place outside of it")
