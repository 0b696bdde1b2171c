"""Longshore takes artifacts aboard: each exactly once, verified, never lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from longshore.domain.keys import canonical_url, content_key, job_key, op_key

__all__ = ["canonical_url", "content_key", "job_key", "op_key"]

_HOME = {
    "canonical_url": "longshore.domain.keys",
    "content_key": "longshore.domain.keys",
    "job_key": "longshore.domain.keys",
    "op_key": "longshore.domain.keys",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `longshore --help` must not pay for libcurl."""
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'longshore' has no attribute {name!r}")
