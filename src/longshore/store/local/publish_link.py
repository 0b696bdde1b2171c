"""Link staged files to their final names without replacing others, on file systems with and without hard links.

link() fails if the name exists. Without hard links, RENAME_NOREPLACE does the same. If the file system has neither
(some network and FUSE file systems), a lock of the whole store replaces them: every process checks and renames while
it holds that lock. A rename is atomic, so a crash does not leave a partial name in any of these cases.
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
from longshore.store import blob_names
from longshore.store.api import Staged
from longshore.store.base_store import extension_of
from longshore.store.durability import filesystem
from longshore.store.records import Problem
from longshore.store.staging.area import Staging
from longshore.store.staging.parts import Part
from longshore.store.verify_blob import problem_with

REPAIR: Final = "lock"
RENAME: Final = "rename.lock"
failpoints.declare("link.link", "link.rename")


class Linker:
    """Link blobs to their names; hold the inter-process locks that repairs and renames need."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._locks = {REPAIR: threading.Lock(), RENAME: threading.Lock()}

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Hold one of the store's locks, against other threads and other processes."""
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
        """Link the staged inode to its final name, or raise FileExistsError."""
        failpoints.hit("link.link")
        body = item.body
        try:
            if isinstance(body, Part):
                body.link_to(file, directory)
            else:
                assert item.staged_as is not None
                os.link(item.staged_as, file, src_dir_fd=small, dst_dir_fd=directory, follow_symlinks=False)
        except OSError as error:
            if error.errno not in filesystem.NO_LINKS:
                raise
            self._move(item, file, directory, small)

    def _move(self, item: Staged, file: str, directory: int, small: int) -> None:
        """Rename the staged file, on file systems without hard links."""
        body = item.body
        try:
            if isinstance(body, Part):
                body.move_to(file, directory)
            else:
                filesystem.rename_noreplace(str(item.staged_as), small, file, directory)
        except OSError as error:
            if error.errno not in filesystem.NO_NOREPLACE:
                raise
            with self.alone(RENAME):
                if filesystem.exists(file, directory):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), file) from None
                failpoints.hit("link.rename")
                if isinstance(body, Part):
                    body.move_to(file, directory, replace=True)
                else:
                    os.rename(str(item.staged_as), file, src_dir_fd=small, dst_dir_fd=directory)


def problem_of(file: str, directory: int, item: Staged) -> Problem | None:
    """Read the blob that has an item's name and return its problem; raise errors that may be transient."""
    try:
        fd = os.open(file, filesystem.READ | os.O_NONBLOCK, dir_fd=directory)
    except FileNotFoundError:
        return Problem.MISSING
    except OSError as error:
        return filesystem.unreadable(error)
    stat = os.fstat(fd)
    if (
        not S_ISREG(stat.st_mode) or stat.st_size != item.size_bytes
    ):  # before Python opens it as a file: a directory is not one
        os.close(fd)
        return Problem.WRONG_SIZE
    with os.fdopen(fd, "rb", buffering=0) as blob:
        try:
            return problem_with(blob, item.sha256, item.size_bytes)
        except OSError as error:
            return filesystem.unreadable(error)


def name_in(directory: int, item: Staged) -> str:
    """Return the name of an item's blob: the one that it has already, if an earlier version named this type differently."""
    ext = extension_of(item)
    former = blob_names.FORMER.get(ext)
    if former is not None and filesystem.exists(item.sha256 + former, directory):
        return item.sha256 + former
    return item.sha256 + ext
