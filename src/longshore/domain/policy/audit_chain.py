"""The chain of the audit log: each line has a hash over itself and over the hash of the line before it.

A line that is changed, removed or put between others breaks the chain from there on. Both engines compute the same hash:
PostgreSQL in the function that adds a line, SQLite by this one. Who can write to the whole ledger can make a new chain, so
the newest hash is worth keeping elsewhere: `longshore doctor` prints it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

Field = str | int | None
START = ""  # what stands before the first line


@dataclass(frozen=True, slots=True)
class Line:
    """What the chain sees of a line."""

    number: int | None
    hash: str | None
    fields: tuple[Field, ...]


@dataclass(slots=True)
class ChainEnd:
    """Where a chain ends: its last number and hash; or where it breaks, and why."""

    number: int = 0
    hash: str = START
    lines: int = 0
    broken: str = field(default="")


def line_hash(previous: str, *fields: Field) -> str:
    """Return the hash of a line; lengths keep neighbouring fields apart."""
    parts = [previous.encode()]
    for value in fields:
        data = None if value is None else str(value).encode()
        parts.append(b"-," if data is None else b"%d:%b," % (len(data), data))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def follow(end: ChainEnd, lines: Iterable[Line]) -> ChainEnd:
    """Follow a chain over some more lines, in the order of their numbers, up to the first one that does not fit."""
    for line in lines:
        if line.number != end.number + 1:
            end.broken = f"line {end.number + 1} is missing" if line.number else "a line has no number"
        elif line.hash != line_hash(end.hash, *line.fields):
            end.broken = f"line {line.number} was changed"
        if end.broken:
            break
        end.number, end.hash, end.lines = end.number + 1, line.hash or "", end.lines + 1
    return end


def closed(end: ChainEnd, number: int, last_hash: str) -> ChainEnd:
    """Compare the last line with what the ledger says is the end."""
    if not end.broken and (end.number, end.hash) != (number, last_hash):
        end.broken = (
            f"line {end.number + 1} is missing" if end.number < number else f"line {end.number} was added by hand"
        )
    return end
