"""Stores: content-addressed bytes on a disk, in S3 or in PostgreSQL, behind one contract."""

from __future__ import annotations

from longshore.lazy_imports import names_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from longshore.store.api import Staged, Store
    from longshore.store.blob_names import shard_of
    from longshore.store.local.place_outside import place
    from longshore.store.local.store import LocalStore
    from longshore.store.open import missing_store, open_store
    from longshore.store.records import Problem, Quarantined, StoredBlob
    from longshore.store.staging.part_facts import PartFacts
    from longshore.store.staging.part_writer import PartWriter
    from longshore.store.staging.parts import Part
    from longshore.store.staging.reservations import Reservation, TenantQuota
else:
    __getattr__ = names_of(
        __name__,
        {
            "StoredBlob": ".records",
            "LocalStore": ".local.store",
            "Part": ".staging.parts",
            "PartFacts": ".staging.part_facts",
            "Problem": ".records",
            "PartWriter": ".staging.part_writer",
            "Quarantined": ".records",
            "Reservation": ".staging.reservations",
            "TenantQuota": ".staging.reservations",
            "Staged": ".api",
            "Store": ".api",
            "missing_store": ".open",
            "open_store": ".open",
            "place": ".local.place_outside",
            "shard_of": ".blob_names",
        },
    )


__all__ = [
    "LocalStore",
    "Part",
    "PartFacts",
    "PartWriter",
    "Problem",
    "Quarantined",
    "Reservation",
    "Staged",
    "Store",
    "StoredBlob",
    "TenantQuota",
    "missing_store",
    "open_store",
    "place",
    "shard_of",
]
