"""A consumer of the change feed as a program: it keeps a copy of the depot's list in a file, and is killed at a step.

Arguments: depot, ledger, copy, step at which to die (0: never). A step is before applying, between applying and
acknowledging, and after acknowledging.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from itertools import count

import longshore
from longshore.ledger.queries.feed import Change


def main(depot_path: str, ledger: str, copy: str, die_at: int) -> None:
    steps = count(1)

    def step() -> None:
        if next(steps) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    mirror = sqlite3.connect(copy, isolation_level=None)
    mirror.execute("CREATE TABLE IF NOT EXISTS held (artifact_id TEXT PRIMARY KEY, sha256 TEXT, availability TEXT)")
    with longshore.open(depot_path, ledger=ledger, create=False) as depot:
        feed = depot.feed("copy")
        for change in feed:
            step()
            apply(mirror, change)
            step()
            feed.ack(change)
            step()


def apply(mirror: sqlite3.Connection, change: Change) -> None:
    if change.artifact is None:
        mirror.execute("DELETE FROM held WHERE artifact_id = ?", (change.artifact_id,))
    else:
        row = (change.artifact_id, change.sha256, change.artifact.availability)
        mirror.execute("INSERT OR REPLACE INTO held VALUES (?, ?, ?)", row)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
