"""Stores: content-addressed bytes on a disk, in S3 or in PostgreSQL, behind one contract."""

from longshore.store.contract import Staged, Store
from longshore.store.local import LocalStore
from longshore.store.names import shard_of
from longshore.store.opening import open_store
from longshore.store.parts import Part, PartFacts
from longshore.store.placing import place
from longshore.store.pump import Pump
from longshore.store.records import Held, Problem, Quarantined
from longshore.store.room import QuotaSettings, Reservation, Room
from longshore.store.settings import StoreSettings

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
    "open_store",
    "place",
    "shard_of",
]
