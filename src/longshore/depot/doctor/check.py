"""The result of one check of `doctor`: evidence and a remedy. A check never raises anything but our own errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from longshore.config import Settings

Status = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    id: str
    status: Status
    evidence: str
    remedy: str | None = None


CheckFunction = Callable[[Settings], Check]


def existing(path: str) -> str:
    """Return the nearest existing directory."""
    while path and not os.path.isdir(path):
        path = os.path.dirname(path)
    return path or "/"
