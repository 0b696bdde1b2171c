"""Serialize writers of a ledger file with flock on a file beside it. A long wait logs which process holds the lock."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)
LONG_S: Final = 10.0  # a transaction takes milliseconds; a process that stands still in one holds up all others


def acquire(lock: int, path: Path) -> None:
    """Acquire the lock. There is no timeout: the holder may be suspended, and failing would not help the caller."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        warning = threading.Timer(LONG_S, _warn, (lock, path))
        warning.daemon = True
        warning.start()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        finally:
            warning.cancel()


def release(lock: int) -> None:
    """Release the lock."""
    fcntl.flock(lock, fcntl.LOCK_UN)


def _warn(lock: int, path: Path) -> None:
    holder = holder_of(lock)
    who = f"process {holder}" if holder is not None else "another process"
    log.warning(
        "%s: waiting for %s, which has been in one transaction for more than %g s;"
        " if it was stopped (Ctrl-Z), let it go on (`kill -CONT %s`) or end it: nothing is lost either way",
        path,
        who,
        LONG_S,
        holder if holder is not None else "PID",
    )


def holder_of(lock: int) -> int | None:
    """Return the process that holds the lock, where the system tells (Linux)."""
    stat = os.fstat(lock)
    place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    held = (line.split() for line in lines if " FLOCK " in line and " -> " not in line)
    return next((int(words[4]) for words in held if words[5] == place), None)
