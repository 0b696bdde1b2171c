"""Detect dead workers on this machine: each worker process holds an OS lock on its own file (ADR 0004).

If the lock can be acquired, its process is dead, and its leases can be released before they expire. A mistake would be
harmless: a process that is still alive is fenced by its lease epoch at the next write.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from longshore.store.durability import filesystem

SUFFIX: Final = ".alive"


def new_owner() -> str:
    """Return this process start: machine, kernel start, process, chance."""
    return ".".join((_machine(), _boot(), str(os.getpid()), secrets.token_hex(4)))


def _machine() -> str:
    return "".join(c if c.isalnum() else "-" for c in socket.gethostname())[:40] or "host"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii")[:8]
    except OSError:
        return "00000000"


class Liveness:
    """The files of one depot's directory; ours is locked from `hold` to `release`."""

    def __init__(self, directory: Path, owner: str) -> None:
        self.owner = owner
        self._directory = directory
        self._descriptor: int | None = None
        self.forsaken = False  # some leases could not be released: keep the file, so that another process releases them

    def hold(self) -> None:
        """Make our file appear already locked: it is locked under another name and then renamed."""
        if self._descriptor is not None:
            return
        filesystem.make_root(self._directory)
        hidden = self._directory / f".{self.owner}"
        self._descriptor = os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hidden.rename(self._file(self.owner))

    def release(self) -> None:
        """Release the liveness lock."""
        if self._descriptor is not None:
            if not self.forsaken:
                self._file(self.owner).unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def count(self) -> int:
        """Return how many processes work on this depot, this one included; of dead ones only until they are released."""
        return sum(1 for _ in self._directory.glob(f"*{SUFFIX}"))

    def dead(self) -> list[str]:
        """Return the owners of this machine whose locks are free."""
        ours = (_machine(), _boot())
        owners = (path.name[: -len(SUFFIX)] for path in self._directory.glob(f"*{SUFFIX}"))
        return [owner for owner in owners if owner != self.owner and _here(owner, ours) and self._free(owner)]

    def forget(self, owners: Iterable[str]) -> None:
        """Remove the files of owners whose leases were given back."""
        for owner in owners:
            self._file(owner).unlink(missing_ok=True)

    def _file(self, owner: str) -> Path:
        return self._directory / f"{owner}{SUFFIX}"

    def _free(self, owner: str) -> bool:
        try:
            descriptor = os.open(self._file(owner), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True


def _here(owner: str, ours: tuple[str, str]) -> bool:
    """Judge only owners whose locks this kernel keeps or kept: the same machine name or the same kernel start."""
    machine, _, rest = owner.partition(".")
    return machine == ours[0] or rest.partition(".")[0] == ours[1]
