"""A depot: one ledger, one store, one configuration, and the methods people use."""

from __future__ import annotations

from longshore.lazy_imports import names_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from longshore.depot.async_depot import AsyncDepot
    from longshore.depot.records import Added, Finding, Got, Overview, Refused, Report
    from longshore.depot.sync_depot import Depot
else:
    __getattr__ = names_of(
        __name__,
        {
            "Added": ".records",
            "AsyncDepot": ".async_depot",
            "Depot": ".sync_depot",
            "Finding": ".records",
            "Got": ".records",
            "Overview": ".records",
            "Refused": ".records",
            "Report": ".records",
        },
    )


__all__ = ["Added", "AsyncDepot", "Depot", "Finding", "Got", "Overview", "Refused", "Report"]
