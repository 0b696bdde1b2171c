"""The depot's own store: begun once, with the first bytes, and never a second time in the place of one that is not mounted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longshore.depot import wiring
from longshore.engine.questions import anything_available
from longshore.errors import NoStore
from longshore.store import missing_store, open_store

if TYPE_CHECKING:
    from longshore.config import Settings
    from longshore.ledger import Ledger
    from longshore.store import Store


def open_own_store(settings: Settings, ledger: Ledger, *, anew: bool = False) -> Store:
    """Open the store that a ledger's artifacts are in; with `anew`, begin another if it is lost."""
    if not anew and (trouble := store_trouble(settings, ledger)):
        raise trouble
    return open_store(wiring.store_place(settings), wiring.store_settings(settings))


def store_trouble(settings: Settings, ledger: Ledger) -> NoStore | None:
    """Say what is wrong where the ledger has artifacts and no store was ever begun; a new depot may begin one."""
    place = wiring.store_place(settings)
    instead = missing_store(place)
    if instead is None or not ledger.read(anything_available):
        return None
    return NoStore(f"the ledger says that bytes are held, and there is no store at {place}: {instead}")
