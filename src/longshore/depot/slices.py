"""A large store is not compared in one go: its hashes are cut into slices, and each pass takes the next."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from longshore.engine.questions import blobs_counted
from longshore.store import disk

if TYPE_CHECKING:
    from longshore.ledger import Ledger

AT_ONCE: Final = 100_000  # blobs that one pass of a worker looks at
_SPACE: Final = 1 << 16  # slices begin and end at four hex digits


class Slice(NamedTuple):
    """Hashes from `low` on and below `high`."""

    low: str
    high: str

    def __contains__(self, sha256: object) -> bool:
        """Tell whether a hash is in it."""
        return isinstance(sha256, str) and self.low <= sha256 < self.high


WHOLE: Final = Slice("", "g")


def cut(number: int, of: int) -> Slice:
    """Give one of so many slices of the whole."""
    first, last = (_SPACE * place // of for place in (number, number + 1))
    return Slice(f"{first:04x}" if first else "", f"{last:04x}" if last < _SPACE else "g")


def next_slice(ledger: Ledger, depot: Path) -> Slice:
    """Give the slice whose turn it is, and remember that it was."""
    of = min(_SPACE, -(-ledger.read(blobs_counted) // AT_ONCE))
    if of <= 1:
        return WHOLE
    path, turn = depot / "reconcile.turn", 0
    with contextlib.suppress(OSError, ValueError):
        turn = int(path.read_text("ascii"))
    disk.write_private(path, str((turn + 1) % of).encode())
    return cut(turn % of, of)
