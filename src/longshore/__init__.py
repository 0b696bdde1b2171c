"""Longshore takes artifacts aboard: each exactly once, verified, never lost."""

from __future__ import annotations

from longshore.lazy_imports import names_of
from longshore.version import __version__ as __version__

TYPE_CHECKING = False  # type checkers know the name; importing `typing` would double the time of `--help`
if TYPE_CHECKING:
    from longshore.depot import AsyncDepot, Depot
    from longshore.depot.records import Added, Finding, Got, Refused, Report
    from longshore.depot.sync_depot import open_depot as open  # noqa: A004 -- `longshore.open` is the name people expect
    from longshore.domain.identity.keys import canonical_url, content_key, job_key, op_key
    from longshore.domain.identity.requests import download_request
    from longshore.domain.kinds import Status
    from longshore.domain.model import Artifact, Job, JobRequest, Planned, Scope
    from longshore.domain.run_events import RunEvent
    from longshore.errors import LongshoreError
    from longshore.ledger.queries.history import FailureGroup, Timeline
    from longshore.ledger.queries.listing import ArtifactFilter, JobFilter
    from longshore.worker.kinds.custom import AsyncContext, Context, Input, JobFailed, Result, job_type
    from longshore.worker.run_types import RunResult

__all__ = [
    "Added",
    "Artifact",
    "ArtifactFilter",
    "AsyncContext",
    "AsyncDepot",
    "Context",
    "Depot",
    "FailureGroup",
    "Finding",
    "Got",
    "Input",
    "Job",
    "JobFailed",
    "JobFilter",
    "JobRequest",
    "LongshoreError",
    "Planned",
    "Refused",
    "Report",
    "Result",
    "RunEvent",
    "RunResult",
    "Scope",
    "Status",
    "Timeline",
    "canonical_url",
    "content_key",
    "download_request",
    "job_key",
    "job_type",
    "op_key",
    "open",
]

__getattr__ = names_of(
    __name__,
    {
        "Added": ".depot.records",
        "Artifact": ".domain.model",
        "ArtifactFilter": ".ledger.queries.listing",
        "AsyncContext": ".worker.kinds.custom",
        "AsyncDepot": ".depot",
        "Context": ".worker.kinds.custom",
        "Depot": ".depot",
        "FailureGroup": ".ledger.queries.history",
        "Finding": ".depot.records",
        "Got": ".depot.records",
        "Input": ".worker.kinds.custom",
        "Job": ".domain.model",
        "JobFailed": ".worker.kinds.custom",
        "JobFilter": ".ledger.queries.listing",
        "JobRequest": ".domain.model",
        "LongshoreError": ".errors",
        "Planned": ".domain.model",
        "Refused": ".depot.records",
        "Report": ".depot.records",
        "Result": ".worker.kinds.custom",
        "RunEvent": ".domain.run_events",
        "RunResult": ".worker.run_types",
        "Scope": ".domain.model",
        "Status": ".domain.kinds",
        "Timeline": ".ledger.queries.history",
        "canonical_url": ".domain.identity.keys",
        "content_key": ".domain.identity.keys",
        "download_request": ".domain.identity.requests",
        "job_key": ".domain.identity.keys",
        "job_type": ".worker.kinds.custom",
        "op_key": ".domain.identity.keys",
        "open": ".depot.sync_depot:open_depot",
    },
)


def __dir__() -> list[str]:
    """List the public names, for completion."""
    return [*__all__, "__version__"]
