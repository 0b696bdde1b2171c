"""Longshore takes artifacts aboard: each exactly once, verified, never lost."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers know the name; importing `typing` would be half of what `--help` costs
if TYPE_CHECKING:
    from typing import Any

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

_HOME = {
    "Artifact": ("longshore.domain.model", "Artifact"),
    "AsyncDepot": ("longshore.depot", "AsyncDepot"),
    "Depot": ("longshore.depot", "Depot"),
    "Input": ("longshore.engine.own", "Input"),
    "JobFailed": ("longshore.engine.own", "JobFailed"),
    "Result": ("longshore.engine.own", "Result"),
    "job_type": ("longshore.engine.own", "job_type"),
    "JobRequest": ("longshore.domain.model", "JobRequest"),
    "Scope": ("longshore.domain.model", "Scope"),
    "Status": ("longshore.domain.states", "Status"),
    "canonical_url": ("longshore.domain.keys", "canonical_url"),
    "content_key": ("longshore.domain.keys", "content_key"),
    "download_request": ("longshore.domain.requests", "download_request"),
    "job_key": ("longshore.domain.keys", "job_key"),
    "op_key": ("longshore.domain.keys", "op_key"),
    "open": ("longshore.depot.sync", "open_depot"),
}


def __getattr__(name: str) -> Any:
    """Import on first use: `longshore --help` must not pay for libcurl."""
    if name in _HOME:
        from importlib import import_module

        module, attribute = _HOME[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'longshore' has no attribute {name!r}")
