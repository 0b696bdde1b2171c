"""The result of one check of `doctor`: evidence and a remedy. A check never raises anything but our own errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from longshore.config import Settings

if TYPE_CHECKING:
    from longshore.ledger import Ledger

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


def on_postgres(settings: Settings) -> bool:
    """Return whether the ledger is in a database."""
    return settings.ledger.startswith(("postgresql://", "postgres://"))


def no_ledger(settings: Settings) -> bool:
    """Return whether there is no ledger file yet."""
    return not on_postgres(settings) and not os.path.exists(settings.ledger)


def opened(settings: Settings) -> Ledger:
    """Open the ledger."""
    from longshore.ledger import Ledger

    return Ledger.open(settings.ledger if on_postgres(settings) else Path(settings.ledger))


def many(n: int, one: str) -> str:
    """Return a count with its noun."""
    return f"{n} {one}{'' if n == 1 else 's'}"
