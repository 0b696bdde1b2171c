"""Make a batch durable: one `syncfs` for many files, one fsync per file for a few (ADR 0005).

A barrier is opened *before* the first write of its batch. Linux records a failed write-back per file system and
reports it once to each descriptor that was open at the time. So each batch opens its own descriptor before it writes,
and cannot lose an error to another batch. A failed barrier is final; fsync is never retried.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from longshore import failpoints
from longshore.store.durability import filesystem
from longshore.thread_pool import Threads

FEW = 8
POOL = 8
CHUNK = 128  # descriptors held open at once when each file is fsynced
SLOW_PER_FILE_S = 0.001  # above this time per file, syncfs is probably flushing other processes' data
SLOW_FROM = 64  # the least number of files that the time is divided by
REST = 16  # batches that use fsync before syncfs is tried again; doubled each time it is slow again
LONGEST_REST = 256


class Barriers:
    """Choose between syncfs and fsync for each batch, by how long earlier batches took."""

    def __init__(self, root_fd: int) -> None:
        self._root_fd = root_fd
        self._whole_allowed = filesystem.syncfs_reports(root_fd)
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._resting = 0
        self._next_rest = REST
        self.seconds = 0.0  # spent waiting, all batches together

    def _whole(self, count: int) -> bool:
        if not self._whole_allowed or count <= FEW:
            return False
        with self._lock:
            if self._resting:
                self._resting -= 1
                return False
        return True

    @contextlib.contextmanager
    def open(self, count: int, name: str) -> Iterator[Barrier]:
        """Open the barrier of a batch of about `count` files or directories; hit failpoint `name` at the wait."""
        whole_fd = None
        if self._whole(count):
            with contextlib.suppress(OSError):  # fall back to one fsync per file
                whole_fd = os.open(".", filesystem.DIRECTORY, dir_fd=self._root_fd)
        barrier = Barrier(self, whole_fd, name)
        try:
            yield barrier
        finally:
            barrier.close()

    def fsync_all(self, fds: list[int]) -> None:
        """Fsync each descriptor, in a thread pool if there are many; raise the first error after all were tried."""
        if len(fds) <= 2:
            for fd in fds:
                os.fsync(fd)
            return
        for fd in fds:
            filesystem.start_writeback(fd)
        with self._lock:
            self._pool = self._pool or Threads(POOL, "longshore-fsync")
        futures = [self._pool.submit(os.fsync, fd) for fd in fds]
        errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None:
                raise error

    def learned(self, elapsed_s: float, count: int, *, whole: bool) -> None:
        """Record the duration of a barrier; after a slow syncfs use fsync for a while."""
        with self._lock:
            self.seconds += elapsed_s
            if not whole:
                return
            if elapsed_s > SLOW_PER_FILE_S * max(count, SLOW_FROM):
                self._resting, self._next_rest = self._next_rest, min(2 * self._next_rest, LONGEST_REST)
            else:
                self._next_rest = REST

    def close(self) -> None:
        """Stop the pool."""
        if self._pool is not None:
            self._pool.shutdown()


class Barrier:
    """The barrier of one batch."""

    def __init__(self, owner: Barriers, whole_fd: int | None, name: str) -> None:
        self._owner = owner
        self._whole_fd = whole_fd
        self._name = name
        self._mine: list[int] = []  # closed by us
        self._kept: list[int] = []  # closed by their owner
        self._count = 0
        self._failed: OSError | None = None
        self.elapsed_s = 0.0

    def take(self, fd: int) -> None:
        """Take over a descriptor: it is durable after `wait`, and closed."""
        self._count += 1
        if self._whole_fd is not None:
            os.close(fd)
            return
        self._mine.append(fd)
        if len(self._mine) >= CHUNK:
            try:
                self._flush()
            except OSError as error:  # it fails the whole batch: `wait` raises it
                self._failed = self._failed or error

    def cover(self, fd: int) -> None:
        """Cover a descriptor that stays open with its owner."""
        self._count += 1
        if self._whole_fd is None:
            self._kept.append(fd)

    def wait(self) -> None:
        """Wait until all taken and covered descriptors are durable, or raise. Do not call it again after an error."""
        failpoints.hit(self._name)
        if self._failed is not None:
            raise self._failed
        started = time.monotonic()
        if self._whole_fd is not None:
            filesystem.syncfs(self._whole_fd)
        else:
            self._flush()
        self.elapsed_s += time.monotonic() - started
        self._owner.learned(self.elapsed_s, self._count, whole=self._whole_fd is not None)

    def _flush(self) -> None:
        try:
            self._owner.fsync_all(self._mine + self._kept)
        finally:
            self._kept.clear()
            self._close_mine()

    def _close_mine(self) -> None:
        while self._mine:
            os.close(self._mine.pop())

    def close(self) -> None:
        """Close every descriptor."""
        self._close_mine()
        if self._whole_fd is not None:
            os.close(self._whole_fd)
            self._whole_fd = None
