"""Records that describe the contents of a store."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from longshore.domain.model import Scope


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """One blob as a walk finds it."""

    scope: Scope
    sha256: str
    size_bytes: int
    pointer: str
    modified_at: int  # microseconds, by the backend's clock: a hint, never a reason to delete


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An item in quarantine."""

    scope: Scope
    name: str
    sha256: str | None  # None: a body that failed validation
    size_bytes: int
    at: int  # microseconds, when it was quarantined
    why: str = field(default="", compare=False)  # a hint, for people


class Problem(StrEnum):
    """What can be wrong with a blob."""

    MISSING = "missing"
    WRONG_SIZE = "wrong_size"
    WRONG_HASH = "wrong_hash"
    UNREADABLE = "unreadable"
