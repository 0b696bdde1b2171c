"""Whether bytes that are announced fit on the disk, and what follows if they do not. Pure: figures in, a verdict out.

| what lacks | meaning | what follows |
|---|---|---|
| `NEVER` | more than the whole file system may hold | final at once, as `too_large` |
| `FULL` | next to nothing is free | no job is claimed and no request sent until there is room; nothing counts |
| `NOT_NOW` | the disk is not full, but these bytes do not fit | an attempt, with the ordinary backoff |
| `OUTGROWN` | bytes that nobody announced filled the disk | the same; what came is thrown away, or the disk stays full |
| `PROMISED` | they would fit, but the room is promised to transfers under way | waits for them; nothing counts |
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
    """Judge what a reservation of `need` bytes lacks now; None if they fit."""
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
