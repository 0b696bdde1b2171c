"""The part writer: takes bytes from libcurl's callback, and hashes and writes them concurrently, each in order.

The callback only copies into an aligned buffer. A full buffer is queued on two lanes: one hashes it, one writes it with
O_DIRECT. The buffer is reused when both are done. No byte is read back from the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from time import monotonic
from typing import Final, Generic, TypeVar

from longshore.errors import LongshoreError, PublishFailed, StoreError
from longshore.store.durability import filesystem
from longshore.store.staging.parts import Part

T = TypeVar("T")
MIB: Final = 1 << 20
LARGE: Final = 2  # MiB of a body's later buffers while few are in use: half the queue operations, one huge page each
AMPLE: Final = 20  # MiB in use beyond which new buffers have 1 MiB: many slow bodies must not cost many huge pages
PLENTY: Final = 15  # MiB that one writer may have in flight while there are few: enough to receive during a checkpoint
FEW: Final = 2  # MiB that every writer may have in flight, regardless of their number
SHARED: Final = 32  # MiB in use beyond which a writer gets only FEW
CHECKPOINT_S: Final = 1.0
CHECKPOINT_LEAST: Final = 64 << 10  # fewer new bytes are not worth an fsync
CHECKPOINT_BYTES: Final = 1 << 30  # reached before CHECKPOINT_S only if bytes arrive faster than a disk writes
_TURNS: Final = 8  # buffers of one lane before another writer's lane gets the thread


class Buffers:
    """A pool of aligned, reusable buffers, counted in MiB."""

    def __init__(self) -> None:
        self._free: dict[int, list[mmap.mmap]] = {1: [], LARGE: []}
        self._kept = 0
        self._lock = threading.Lock()
        self.in_use = 0

    def take(self, *, large: bool = True) -> mmap.mmap:
        """Take a buffer from the pool, a large one only while few are in use."""
        with self._lock:
            size = LARGE if large and self.in_use + LARGE <= AMPLE else 1
            self.in_use += size
            if not self._free[size]:
                return _memory(size)
            self._kept -= size
            return self._free[size].pop()

    def give(self, buffer: mmap.mmap) -> None:
        """Return a buffer to the pool."""
        size = len(buffer) // MIB
        with self._lock:
            self.in_use -= size
            if self._kept + size <= SHARED:
                self._kept += size
                self._free[size].append(buffer)


def _memory(size: int) -> mmap.mmap:
    """Map memory; private, because the kernel uses huge pages only for private mappings."""
    memory = mmap.mmap(-1, size * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size == LARGE:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class _Mark:
    """An offset of the body, with its hash, that becomes a checkpoint when both lanes have passed it."""

    __slots__ = ("left", "sha256", "upto")

    def __init__(self, upto: int) -> None:
        self.upto = upto
        self.left = 2  # lanes that have not passed it
        self.sha256 = ""


class _Stretch:
    """A range of a buffer, with its offset in the body."""

    __slots__ = ("base", "buffer", "end", "final", "hash_from", "mark", "users", "write_from")

    def __init__(self, buffer: mmap.mmap, base: int, hash_from: int, write_from: int, end: int) -> None:
        self.buffer = buffer
        self.base = base  # offset in the body of the buffer's first byte
        self.hash_from = hash_from
        self.write_from = write_from
        self.end = end
        self.users = 0  # lanes that must finish before the buffer is free; 0: the writer keeps it
        self.mark: _Mark | None = None  # at the end of the stretch
        self.final = False


class _Lane(Generic[T]):
    """A queue whose items are processed in order, one at a time, on a shared pool."""

    def __init__(self, pool: Executor, work: Callable[[T], None]) -> None:
        self._pool = pool
        self._work = work
        self._queue: deque[T] = deque()
        self._lock = threading.Lock()
        self._running = False

    def put(self, stretch: T) -> None:
        """Queue an item; submit the lane to the pool only if it is idle."""
        with self._lock:
            self._queue.append(stretch)
            if self._running:
                return
            self._running = True
        self._pool.submit(self._drain)

    def _drain(self) -> None:
        for _ in range(_TURNS):
            with self._lock:
                if not self._queue:
                    self._running = False
                    return
                stretch = self._queue.popleft()
            self._work(stretch)
        self._pool.submit(self._drain)


class PartWriter:
    """Write one body to one part. `feed` never blocks, and only one thread may call it.

    `feed` always takes the bytes; False asks the caller to pause until `resume` is called (in the loop's thread, if
    the writer was created in one). A failed write is raised by a later `feed` and by `finish`. No other code may use
    the part between the first `feed` and the end of `finish`, `stop` or `abandon`.
    """

    def __init__(
        self, part: Part, pool: Executor, buffers: Buffers, resume: Callable[[], object] | None = None
    ) -> None:
        self._part = part
        self._buffers = buffers
        self._resume = resume
        self._loop = _running_loop()
        self._lock = threading.Lock()
        self._quiet = threading.Condition(self._lock)
        self._under_way = 0  # stretches queued in lanes
        self._held = 0  # MiB of queued buffers
        self._paused = False
        self._ended = False  # the last stretch was queued
        self._failed: Exception | None = None
        self._hash_lane: _Lane[_Stretch] = _Lane(pool, self._hash)
        self._write_lane: _Lane[_Stretch | _Mark] = _Lane(pool, self._write)
        self._direct = part.direct_fd is not None
        self._take(large=False)  # hashing begins sooner, and a small body does not use a huge page
        self._base = part.size_bytes - part.size_bytes % filesystem.BLOCK  # a direct write begins at a whole block
        self._fill = self._hash_from = part.size_bytes - self._base
        self._write_from = 0
        if self._fill:
            self._current[: self._fill] = part.read_back(self._base, self._fill)
        self._checkpoint_at, self._checkpoint_from = monotonic(), part.size_bytes

    @property
    def fed_bytes(self) -> int:
        """The length of the body so far."""
        return self._base + self._fill

    @property
    def paused(self) -> bool:
        """Whether the transfer is paused until the disk catches up."""
        return self._paused

    def feed(self, data: bytes) -> bool:
        """Accept bytes; return False if the transfer should pause."""
        if self._failed is not None:
            raise self._failed
        size, done = len(data), 0
        while done < size:
            step = min(size - done, self._size - self._fill)
            self._current[self._fill : self._fill + step] = data if step == size else data[done : done + step]
            self._fill += step
            done += step
            if self._fill == self._size:
                self._turn()
        self._maybe_checkpoint()
        return self._may_go_on()

    def room(self) -> memoryview:
        """Return memory for the next bytes, never empty; filling it saves a copy. Valid until the next call."""
        if self._failed is not None:
            raise self._failed
        return memoryview(self._current)[self._fill :]

    def filled(self, count: int) -> bool:
        """Accept bytes that were written to the start of `room`; return False if the transfer should pause."""
        self._fill += count
        if self._fill == self._size:
            self._turn()
        self._maybe_checkpoint()
        return self._may_go_on()

    async def finish(self) -> tuple[str, int]:
        """Wait until everything is hashed and written; the barrier makes it durable later."""
        self._turn(final=True)
        await asyncio.to_thread(self._wait)
        return self._result()

    def finish_now(self) -> tuple[str, int]:
        """Do the same as `finish`, blocking the calling thread."""
        self._turn(final=True)
        self._wait()
        return self._result()

    async def stop(self) -> int:
        """Keep the received bytes for a later epoch: make them durable, close the part, return the durable offset."""
        return await asyncio.to_thread(self.stop_now)

    def stop_now(self) -> int:
        """Do the same as `stop`, blocking the calling thread; also allowed after a canceled `finish`."""
        if self._ended:
            self._wait()
            if self._failed is None:
                self._part.checkpoint()
        else:
            self._turn(final=True, checkpoint=self._failed is None)
            self._wait()
        durable = 0 if self._failed is not None else self._part.durable_bytes
        self._part.close()
        return durable

    async def abandon(self) -> None:
        """Discard the part, in a thread, because removing a large file is slow."""
        self._failed = self._failed or PublishFailed("given up")
        await asyncio.to_thread(self._abandon_now)

    def _abandon_now(self) -> None:
        self._wait()
        if not self._ended:
            self._release_current()
        self._part.discard()

    def _result(self) -> tuple[str, int]:
        if self._failed is not None:
            self._part.discard()
            raise self._failed
        return self._part.sha256, self._part.size_bytes

    def _may_go_on(self) -> bool:
        if self._held < FEW:
            return True
        with self._lock:
            self._paused = self._held >= self._allowed()
            return not self._paused

    def _allowed(self) -> int:
        return PLENTY if self._buffers.in_use <= SHARED else FEW

    def _turn(self, *, final: bool = False, checkpoint: bool = False) -> None:
        """Queue the current buffer on both lanes; take another unless this was the last."""
        stretch = _Stretch(self._current, self._base, self._hash_from, self._write_from, self._fill)
        stretch.users, stretch.final = 2, final
        if checkpoint:
            stretch.mark = _Mark(self._base + self._fill)
        with self._lock:
            self._under_way += 2
            self._held += len(stretch.buffer) // MIB
        self._hash_lane.put(stretch)
        self._write_lane.put(stretch)
        if final:
            self._ended = True
            return
        self._base += self._fill
        self._fill = self._hash_from = self._write_from = 0
        self._take()

    def _maybe_checkpoint(self) -> None:
        new = self._base + self._fill - self._checkpoint_from
        if new < CHECKPOINT_LEAST:
            return
        now = monotonic()
        if now - self._checkpoint_at < CHECKPOINT_S and new < CHECKPOINT_BYTES:
            return
        end = self._fill - self._fill % filesystem.BLOCK
        if end < self._hash_from:
            return
        stretch = _Stretch(self._current, self._base, self._hash_from, self._write_from, end)
        stretch.mark = _Mark(self._base + end)
        self._checkpoint_at, self._checkpoint_from = now, self._base + end
        self._hash_from = self._write_from = end
        with self._lock:
            self._under_way += 2
        self._hash_lane.put(stretch)
        self._write_lane.put(stretch)

    def _hash(self, stretch: _Stretch) -> None:
        try:
            if self._failed is None:
                with memoryview(stretch.buffer) as whole, whole[stretch.hash_from : stretch.end] as view:
                    self._part.hashed(view)
                if stretch.mark is not None:
                    stretch.mark.sha256 = self._part.sha256
                    self._pass(stretch.mark)
        except Exception as error:  # noqa: BLE001 - re-raised in the thread that calls `feed`
            self._failed = error
        self._done(stretch)

    def _pass(self, mark: _Mark) -> None:
        """Record that a lane has passed a mark; the second lane queues the checkpoint after the pending writes."""
        with self._lock:
            mark.left -= 1
            if mark.left:
                return
            self._under_way += 1
        self._write_lane.put(mark)

    def _write(self, stretch: _Stretch | _Mark) -> None:
        try:
            if self._failed is None:
                if isinstance(stretch, _Mark):
                    self._part.checkpoint(stretch.upto, stretch.sha256)
                else:
                    self._write_stretch(stretch)
        except LongshoreError as error:
            self._failed = error
        except Exception as error:  # noqa: BLE001 - re-raised in the thread that calls `feed`
            self._failed = StoreError(f"writing a part: {type(error).__name__}")
        self._done(stretch)

    def _write_stretch(self, stretch: _Stretch) -> None:
        end = stretch.end
        if stretch.final and self._direct and end % filesystem.BLOCK:
            padded = end + filesystem.BLOCK - end % filesystem.BLOCK
            stretch.buffer[end:padded] = bytes(padded - end)
            end = padded
        if end > stretch.write_from:
            with memoryview(stretch.buffer) as whole, whole[stretch.write_from : end] as view:
                self._part.write_at(view, stretch.base + stretch.write_from, direct=True)
        if stretch.final:
            self._part.cut(stretch.base + stretch.end)
        if stretch.mark is not None:
            self._pass(stretch.mark)

    def _done(self, stretch: _Stretch | _Mark) -> None:
        resume = False
        with self._lock:
            self._under_way -= 1
            if isinstance(stretch, _Stretch) and stretch.users:
                stretch.users -= 1
                if not stretch.users:
                    self._buffers.give(stretch.buffer)
                    self._held -= len(stretch.buffer) // MIB
                    resume = self._paused and self._held <= self._allowed() // 2  # each pause wakes the loop
                    self._paused = self._paused and not resume
            if not self._under_way:
                self._quiet.notify_all()
        if (resume or (self._failed is not None and self._paused)) and self._resume is not None:
            self._paused = False
            self._call(self._resume)

    def _call(self, resume: Callable[[], object]) -> None:
        if self._loop is None:
            resume()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(resume)

    def _wait(self) -> None:
        with self._lock:
            while self._under_way:
                self._quiet.wait()

    def _take(self, *, large: bool = True) -> None:
        self._current = self._buffers.take(large=large)
        self._size = len(self._current)

    def _release_current(self) -> None:
        self._buffers.give(self._current)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
