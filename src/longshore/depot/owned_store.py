"""Open the depot's store: it is created once, with the first bytes, and never again in place of an unmounted one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from longshore.depot import derived_settings
from longshore.errors import LedgerError, NoStore
from longshore.ledger.maintenance import snapshot
from longshore.ledger.operations.ledger_identity import ledger_id, make_ledger_id
from longshore.ledger.queries.due_work import anything_available
from longshore.store import missing_store, open_store

if TYPE_CHECKING:
    from longshore.config import Settings
    from longshore.ledger import Ledger
    from longshore.store import Store


ID_S: Final = (
    3.0  # for an older ledger to get an id; one that another program holds is waited for by the worker, not here
)


def open_own_store(settings: Settings, ledger: Ledger, *, anew: bool = False) -> Store:
    """Open the store of a ledger's artifacts; with `anew`, create a new one if it is lost.

    Raise `ForeignStore` if the store belongs to another ledger.
    """
    if not anew and (trouble := store_trouble(settings, ledger)):
        raise trouble
    return open_store_of(settings, ledger, derived_settings.store_place(settings))


def open_store_of(settings: Settings, ledger: Ledger, place: str) -> Store:
    """Open a store that belongs to this ledger."""
    return open_store(place, settings, parts=Path(settings.depot, "parts"), ledger_id=_id_of(ledger))


def open_store_of_snapshot(settings: Settings, copy: Path) -> Store:
    """Open the store that the copy of a ledger file refers to, to read from it; the schema may be an older one."""
    place = derived_settings.store_place(settings)
    instead = missing_store(place)
    if instead is not None and any(True for _ in snapshot.blobs(copy)):
        raise NoStore(f"the ledger has artifacts, but no store was found at {place}: {instead}")
    return open_store(place, settings, parts=Path(settings.depot, "parts"), ledger_id=snapshot.ledger_id(copy))


def _id_of(ledger: Ledger) -> str | None:
    """Return the ledger's id; create it if missing. A ledger that cannot be written now and has no id claims no store,
    and may not open a claimed one; a permanently read-only ledger may read any.
    """
    found = ledger.read(ledger_id)
    if found is None and not ledger.frozen:
        try:
            return ledger.backend.submit(make_ledger_id).result(ID_S)
        except (LedgerError, TimeoutError):
            return ""
    return found


def store_trouble(settings: Settings, ledger: Ledger) -> NoStore | None:
    """Return the error if the ledger has artifacts but no store was ever created; a new depot may create one."""
    place = derived_settings.store_place(settings)
    instead = missing_store(place)
    if instead is None or not ledger.read(anything_available):
        return None
    return NoStore(f"the ledger has artifacts, but no store was found at {place}: {instead}")
