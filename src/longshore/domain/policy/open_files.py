"""How many transfers fit into a limit of open files. Pure arithmetic; `worker.open_files` asks the kernel and applies it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BASE: Final = (
    40  # the ledger, the store's directories, the loop, standard streams, threads that open a file for a moment
)
PER_TRANSFER: Final = (
    8  # a socket, one more while it is opened, a part with its directory, and those of parts that wait to be published
)
COMFORTABLE: Final = 512  # from here on nothing but the number of transfers is bounded


@dataclass(frozen=True, slots=True)
class Share:
    """What a process may have open at once."""

    transfers: int
    connections: int  # open ones, idle ones included
    batch_items: int  # bodies that are published together: each may hold two directories open


def wanted(concurrency: int) -> int:
    """Return the limit of open files with which so many transfers are not bounded."""
    return max(COMFORTABLE, BASE + 2 * PER_TRANSFER * concurrency)


def share(limit: int, *, concurrency: int, batch_items: int) -> Share:
    """Divide a limit of open files among transfers, idle connections and publishing; at least one of each."""
    free = max(0, limit - BASE)
    transfers = max(1, min(concurrency, free // PER_TRANSFER))
    connections = max(64, 2 * concurrency)
    if limit >= COMFORTABLE:
        return Share(transfers, min(connections, max(transfers, limit // 2)), batch_items)
    return Share(transfers, max(transfers, min(connections, free // 3)), max(1, min(batch_items, free // 8)))
