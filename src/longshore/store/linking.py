"""Giving staged bytes their final name without replacing another, on file systems with and without links.

A link refuses a name that exists. Without links, RENAME_NOREPLACE does the same. Where the file system has neither (some
network and FUSE file systems), one lock of the whole store stands for it: every process looks and renames under that
lock. A rename replaces a name whole or not at all, so a crash leaves nothing half there either way.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from stat import S_ISREG
from typing import Final

from longshore import failpoints
from longshore.store import disk
from longshore.store.contract import Staged
from longshore.store.parts import Part
from longshore.store.proof import problem_with
from longshore.store.records import Problem
from longshore.store.staging import Staging

REPAIR: Final = "lock"
RENAME: Final = "rename.lock"
failpoints.declare("link.link", "link.rename")


class Linker:
    """Names blobs; holds the locks between processes that repairs and renames need."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._locks = {REPAIR: threading.Lock(), RENAME: threading.Lock()}

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Hold one of the store's locks, in this process and among all."""
        with self._locks[name]:
            self._staging.mend()
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(name, flags, 0o600, dir_fd=self._staging.fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                yield
            finally:
                os.close(fd)

    def name(self, item: Staged, file: str, directory: int, small: int) -> None:
        """Return the staged inode its final name, or raise FileExistsError."""
        failpoints.hit("link.link")
        body = item.body
        try:
            if isinstance(body, Part):
                body.link_to(file, directory)
            else:
                assert item.staged_as is not None
                os.link(item.staged_as, file, src_dir_fd=small, dst_dir_fd=directory, follow_symlinks=False)
        except OSError as error:
            if error.errno not in disk.NO_LINKS:
                raise
            self._move(item, file, directory, small)

    def _move(self, item: Staged, file: str, directory: int, small: int) -> None:
        """Name it where there are no links."""
        body = item.body
        try:
            if isinstance(body, Part):
                body.move_to(file, directory)
            else:
                disk.rename_noreplace(str(item.staged_as), small, file, directory)
        except OSError as error:
            if error.errno not in disk.NO_NOREPLACE:
                raise
            with self.alone(RENAME):
                if disk.exists(file, directory):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), file) from None
                failpoints.hit("link.rename")
                if isinstance(body, Part):
                    body.move_to(file, directory, replace=True)
                else:
                    os.rename(str(item.staged_as), file, src_dir_fd=small, dst_dir_fd=directory)


def problem_of(file: str, directory: int, item: Staged) -> Problem | None:
    """Read the blob that has an item's name; what cannot be read is a problem, what may pass by itself is raised."""
    try:
        fd = os.open(file, disk.READ | os.O_NONBLOCK, dir_fd=directory)
    except FileNotFoundError:
        return Problem.MISSING
    except OSError as error:
        return disk.unreadable(error)
    stat = os.fstat(fd)
    if (
        not S_ISREG(stat.st_mode) or stat.st_size != item.size_bytes
    ):  # before it is a file for Python: a directory is none
        os.close(fd)
        return Problem.WRONG_SIZE
    with os.fdopen(fd, "rb", buffering=0) as blob:
        try:
            return problem_with(blob, item.sha256, item.size_bytes)
        except OSError as error:
            return disk.unreadable(error)
