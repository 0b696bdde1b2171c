"""Longshore takes artifacts aboard: each exactly once, verified, never lost."""

from __future__ import annotations

from longshore.first_use import names_of

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers know the name; importing `typing` would be half of what `--help` costs
if TYPE_CHECKING:
    from longshore.depot import AsyncDepot, Depot
    from longshore.depot.sync import open_depot as open  # noqa: A004 -- `longshore.open` is the name people expect
    from longshore.domain.keys import canonical_url, content_key, job_key, op_key
    from longshore.domain.model import Artifact, JobRequest, Scope
    from longshore.domain.requests import download_request
    from longshore.domain.states import Status
    from longshore.engine.own import Input, JobFailed, Result, job_type

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
        "Input": ".engine.own",
        "JobFailed": ".engine.own",
        "Result": ".engine.own",
        "job_type": ".engine.own",
        "JobRequest": ".domain.model",
        "Scope": ".domain.model",
        "Status": ".domain.states",
        "canonical_url": ".domain.keys",
        "content_key": ".domain.keys",
        "download_request": ".domain.requests",
        "job_key": ".domain.keys",
        "op_key": ".domain.keys",
        "open": ".depot.sync:open_depot",
    },
)
