"""The ledger: jobs, leases, effects and artifacts that survive anything."""

from __future__ import annotations

from longshore.lazy_imports import names_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from longshore.ledger.ledger import Ledger
    from longshore.ledger.queries.history import Event, FailureGroup, Timeline
    from longshore.ledger.queries.listing import ArtifactFilter, JobFilter, Page
    from longshore.ledger.records import Begun, CancelResult, Effect, Intent, Move, Renewed, Settled
else:
    __getattr__ = names_of(
        __name__,
        {
            "ArtifactFilter": ".queries.listing",
            "Begun": ".records",
            "CancelResult": ".records",
            "Effect": ".records",
            "Event": ".queries.history",
            "FailureGroup": ".queries.history",
            "Intent": ".records",
            "JobFilter": ".queries.listing",
            "Ledger": ".ledger",
            "Move": ".records",
            "Page": ".queries.listing",
            "Renewed": ".records",
            "Settled": ".records",
            "Timeline": ".queries.history",
        },
    )


__all__ = [
    "ArtifactFilter",
    "Begun",
    "CancelResult",
    "Effect",
    "Event",
    "FailureGroup",
    "Intent",
    "JobFilter",
    "Ledger",
    "Move",
    "Page",
    "Renewed",
    "Settled",
    "Timeline",
]
