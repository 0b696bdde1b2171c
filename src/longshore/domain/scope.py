"""Whose something is. Apart from the other records: whoever only looks needs no more."""

from __future__ import annotations

from typing import NamedTuple


class Scope(NamedTuple):
    """A tenant and its project: the first two columns of every key."""

    tenant_id: str = "default"
    project_id: str = "default"
