"""Longshore takes artifacts aboard: each exactly once, verified, never lost."""

from __future__ import annotations

from longshore.lazy_imports import names_of
from longshore.version import __version__ as __version__

TYPE_CHECKING = False  # type checkers know the name; importing `typing` would double the time of `--help`
if TYPE_CHECKING:
    from longshore.depot import AsyncDepot, Depot
    from longshore.depot.sync_depot import open_depot as open  # noqa: A004 -- `longshore.open` is the name people expect
    from longshore.domain.identity.keys import canonical_url, content_key, job_key, op_key
    from longshore.domain.identity.requests import download_request
    from longshore.domain.kinds import Status
    from longshore.domain.model import Artifact, JobRequest, Scope
    from longshore.worker.kinds.custom import Input, JobFailed, Result, job_type

__all__ = [
    "Artifact",
    "AsyncDepot",
    "Depot",
    "Input",
    "JobFailed",
    "JobRequest",
    "Result",
    "Scope",
    "Status",
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
        "Artifact": ".domain.model",
        "AsyncDepot": ".depot",
        "Depot": ".depot",
        "Input": ".worker.kinds.custom",
        "JobFailed": ".worker.kinds.custom",
        "Result": ".worker.kinds.custom",
        "job_type": ".worker.kinds.custom",
        "JobRequest": ".domain.model",
        "Scope": ".domain.model",
        "Status": ".domain.kinds",
        "canonical_url": ".domain.identity.keys",
        "content_key": ".domain.identity.keys",
        "download_request": ".domain.identity.requests",
        "job_key": ".domain.identity.keys",
        "op_key": ".domain.identity.keys",
        "open": ".depot.sync_depot:open_depot",
    },
)
