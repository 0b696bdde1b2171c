"""A large store is compared in slices of its hashes; each pass takes the next slice."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from longshore.ledger.queries.due_work import blobs_counted
from longshore.store.durability import filesystem

if TYPE_CHECKING:
    from longshore.ledger import Ledger

AT_ONCE: Final = 100_000  # blobs that one pass of a worker checks
_SPACE: Final = 1 << 16  # slices begin and end at four hex digits


class Slice(NamedTuple):
    """Hashes from `low` on and below `high`."""

    low: str
    high: str

    def __contains__(self, sha256: object) -> bool:
        """Return whether a hash is in the slice."""
        return isinstance(sha256, str) and self.low <= sha256 < self.high


WHOLE: Final = Slice("", "g")


def cut(number: int, of: int) -> Slice:
    """Return one of `count` equal slices."""
    first, last = (_SPACE * place // of for place in (number, number + 1))
    return Slice(f"{first:04x}" if first else "", f"{last:04x}" if last < _SPACE else "g")


def next_slice(ledger: Ledger, depot: Path) -> Slice:
    """Return the next slice, and record that it was taken."""
    of = min(_SPACE, -(-ledger.read(blobs_counted) // AT_ONCE))
    if of <= 1:
        return WHOLE
    path, turn = depot / "reconcile.turn", 0
    with contextlib.suppress(OSError, ValueError):
        turn = int(path.read_text("ascii"))
    filesystem.write_private(path, str((turn + 1) % of).encode())
    return cut(turn % of, of)
