"""The ledger: jobs, leases, effects and artifacts that survive anything."""

from __future__ import annotations

TYPE_CHECKING = False  # every name is imported on first use: whoever needs one part need not wait for the others
if TYPE_CHECKING:
    from longshore.ledger.ledger import Ledger
    from longshore.ledger.listing import ArtifactFilter, Event, FailureGroup, JobFilter, Page, Timeline
    from longshore.ledger.records import Begun, CancelResult, Effect, Intent, Move, Renewed, Settled
else:
    _HOME = {
        "ArtifactFilter": "listing",
        "Begun": "records",
        "CancelResult": "records",
        "Effect": "records",
        "Event": "listing",
        "FailureGroup": "listing",
        "Intent": "records",
        "JobFilter": "listing",
        "Ledger": "ledger",
        "Move": "records",
        "Page": "listing",
        "Renewed": "records",
        "Settled": "records",
        "Timeline": "listing",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'longshore.ledger' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"longshore.ledger.{_HOME[name]}"), name)


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
