"""The ledger: jobs, leases, effects and artifacts that survive anything."""

from longshore.ledger.ledger import Ledger
from longshore.ledger.listing import ArtifactFilter, Event, FailureGroup, JobFilter, Page, Timeline
from longshore.ledger.records import Begun, CancelResult, Effect, Intent, Move, Renewed, Settled

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
