"""Stores: content-addressed bytes on a disk, in S3 or in PostgreSQL, behind one contract."""

from __future__ import annotations

from longshore.first_use import names_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from longshore.store.contract import Staged, Store
    from longshore.store.local import LocalStore
    from longshore.store.names import shard_of
    from longshore.store.opening import missing_store, open_store
    from longshore.store.parts import Part, PartFacts
    from longshore.store.placing import place
    from longshore.store.pump import Pump
    from longshore.store.records import Held, Problem, Quarantined
    from longshore.store.room import QuotaSettings, Reservation, Room
    from longshore.store.settings import StoreSettings
else:
    __getattr__ = names_of(
        __name__,
        {
            "Held": ".records",
            "LocalStore": ".local",
            "Part": ".parts",
            "PartFacts": ".parts",
            "Problem": ".records",
            "Pump": ".pump",
            "Quarantined": ".records",
            "QuotaSettings": ".room",
            "Reservation": ".room",
            "Room": ".room",
            "Staged": ".contract",
            "Store": ".contract",
            "StoreSettings": ".settings",
            "missing_store": ".opening",
            "open_store": ".opening",
            "place": ".placing",
            "shard_of": ".names",
        },
    )


__all__ = [
    "Held",
    "LocalStore",
    "Part",
    "PartFacts",
    "Problem",
    "Pump",
    "Quarantined",
    "QuotaSettings",
    "Reservation",
    "Room",
    "Staged",
    "Store",
    "StoreSettings",
    "missing_store",
    "open_store",
    "place",
    "shard_of",
]
