"""Decide whether announced bytes fit on the disk, and what to do if they do not. Pure functions.

| lack | meaning | consequence |
|---|---|---|
| `NEVER` | more than the whole file system can hold | fail at once with `too_large` |
| `FULL` | almost no space is free | claim no job and send no request until there is space; no attempt is counted |
| `NOT_NOW` | the disk is not full, but these bytes do not fit | count an attempt, with the usual backoff |
| `OUTGROWN` | a body without a declared length filled the disk | the same; its part is deleted to free the disk |
| `PROMISED` | the free space is reserved by running transfers | wait for them; no attempt is counted |
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

LEAST_BYTES: Final = 64 << 10  # a disk with less than this above its floor is full


class Lack(StrEnum):
    """Why bytes do not fit."""

    NEVER = "never"
    FULL = "full"
    NOT_NOW = "not_now"
    OUTGROWN = "outgrown"
    PROMISED = "promised"


COUNTED: Final = frozenset({Lack.NOT_NOW, Lack.OUTGROWN})  # an attempt like any other


def lack_of(*, free: int, reserved: int, floor: int, need: int) -> Lack | None:
    """Return why a reservation of `need` bytes does not fit now; None if it fits."""
    if free - reserved - need >= floor:
        return None
    if is_full(free, floor):
        return Lack.FULL
    return Lack.PROMISED if free - need >= floor else Lack.NOT_NOW


def is_full(free: int, floor: int) -> bool:
    """Return whether next to nothing may be written."""
    return free < floor + LEAST_BYTES


def never_fits(nbytes: int, *, capacity: int, floor: int) -> bool:
    """Return whether the empty file system could not hold these bytes; a floor beyond the capacity says nothing of them."""
    return floor < capacity and nbytes > capacity - floor


def growth_lack(*, free: int, floor: int, written: int) -> Lack:
    """Judge who filled a disk that is at its floor: the body itself with what it wrote unannounced, or others."""
    return Lack.FULL if is_full(free + written, floor) else Lack.OUTGROWN
