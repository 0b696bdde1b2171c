"""The tenant and project of a record. A separate module, because the fast path imports nothing else."""

from __future__ import annotations

from typing import NamedTuple


class Scope(NamedTuple):
    """A tenant and its project: the first two columns of every key."""

    tenant_id: str = "default"
    project_id: str = "default"
