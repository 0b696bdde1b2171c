"""The pump: from libcurl's callback into a part, hashing and writing side by side, each in order.

The callback only copies into an aligned buffer. A full buffer goes to two lanes at once: one hashes, one writes past
the page cache; it is used again when both are done. No byte is read back from the disk.
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
from longshore.store import disk
from longshore.store.parts import Part

T = TypeVar("T")
MIB: Final = 1 << 20
LARGE: Final = 2  # MiB of a body's later buffers while few are in use: half the hand-overs, one huge page each
AMPLE: Final = 20  # MiB in use beyond which new buffers have 1 MiB: many slow bodies must not cost many huge pages
PLENTY: Final = 15  # MiB one pump may have under way while there are few pumps: they carry it over a checkpoint
FEW: Final = 2  # what every pump may have, however many there are
SHARED: Final = 32  # MiB in use beyond which a pump gets only FEW
CHECKPOINT_S: Final = 1.0
CHECKPOINT_LEAST: Final = 64 << 10  # fewer new bytes are not worth an fsync
CHECKPOINT_BYTES: Final = 1 << 30  # sooner than CHECKPOINT_S only where bytes come faster than a disk writes
_TURNS: Final = 8  # buffers of one lane before another pump's lane gets the thread


class Buffers:
    """Aligned memory, used again and again. Counted in MiB."""

    def __init__(self) -> None:
        self._free: dict[int, list[mmap.mmap]] = {1: [], LARGE: []}
        self._kept = 0
        self._lock = threading.Lock()
        self.in_use = 0

    def take(self, *, large: bool = True) -> mmap.mmap:
        """Give a buffer, a large one only while few are in use."""
        with self._lock:
            size = LARGE if large and self.in_use + LARGE <= AMPLE else 1
            self.in_use += size
            if not self._free[size]:
                return _memory(size)
            self._kept -= size
            return self._free[size].pop()

    def give(self, buffer: mmap.mmap) -> None:
        """Take a buffer back."""
        size = len(buffer) // MIB
        with self._lock:
            self.in_use -= size
            if self._kept + size <= SHARED:
                self._kept += size
                self._free[size].append(buffer)


def _memory(size: int) -> mmap.mmap:
    """Ask for memory; private, because the kernel gives huge pages to no other."""
    memory = mmap.mmap(-1, size * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size == LARGE:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class _Mark:
    """A place in the body that becomes a checkpoint when both lanes have passed it: the hash there goes with it."""

    __slots__ = ("left", "sha256", "upto")

    def __init__(self, upto: int) -> None:
        self.upto = upto
        self.left = 2  # lanes that have not passed it
        self.sha256 = ""


class _Stretch:
    """Some of a buffer, with its place in the body."""

    __slots__ = ("base", "buffer", "end", "final", "hash_from", "mark", "users", "write_from")

    def __init__(self, buffer: mmap.mmap, base: int, hash_from: int, write_from: int, end: int) -> None:
        self.buffer = buffer
        self.base = base  # offset in the body of the buffer's first byte
        self.hash_from = hash_from
        self.write_from = write_from
        self.end = end
        self.users = 0  # lanes that must be done before the buffer is free; 0: it stays with the pump
        self.mark: _Mark | None = None  # at the end of the stretch
        self.final = False


class _Lane(Generic[T]):
    """Work in order, one stretch at a time, on a shared pool."""

    def __init__(self, pool: Executor, work: Callable[[T], None]) -> None:
        self._pool = pool
        self._work = work
        self._queue: deque[T] = deque()
        self._lock = threading.Lock()
        self._running = False

    def put(self, stretch: T) -> None:
        """Queue one; the pool is asked only when the lane stands still."""
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


class Pump:
    """Carry one body into one part. `feed` never blocks; one thread feeds.

    `feed` always takes the bytes; False says: enough for now, wait until `resume` was called (in the loop's thread, if
    the pump was made in one). A failed write is raised by a later `feed` and by `finish`. Nobody else touches the part
    between the first `feed` and the end of `finish`, `stop` or `abandon`.
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
        self._under_way = 0  # stretches in lanes
        self._held = 0  # MiB of buffers under way
        self._paused = False
        self._ended = False  # the last stretch was handed over
        self._failed: Exception | None = None
        self._hash_lane: _Lane[_Stretch] = _Lane(pool, self._hash)
        self._write_lane: _Lane[_Stretch | _Mark] = _Lane(pool, self._write)
        self._direct = part.direct_fd is not None
        self._take(large=False)  # hashing begins sooner, and a body that ends in it costs no huge page
        self._base = part.size_bytes - part.size_bytes % disk.BLOCK  # a direct write begins at a whole block
        self._fill = self._hash_from = part.size_bytes - self._base
        self._write_from = 0
        if self._fill:
            self._current[: self._fill] = part.read_back(self._base, self._fill)
        self._checkpoint_at, self._checkpoint_from = monotonic(), part.size_bytes

    @property
    def fed_bytes(self) -> int:
        """How long the body is, with everything fed so far."""
        return self._base + self._fill

    @property
    def paused(self) -> bool:
        """Whether the transfer was told to wait for the disk."""
        return self._paused

    def feed(self, data: bytes) -> bool:
        """Take bytes; False when the transfer should pause."""
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
        """Give memory for the next bytes, never empty: who fills it saves a copy. Good until the next call."""
        if self._failed is not None:
            raise self._failed
        return memoryview(self._current)[self._fill :]

    def filled(self, count: int) -> bool:
        """Take bytes that lie at the beginning of `room`; False when the transfer should pause."""
        self._fill += count
        if self._fill == self._size:
            self._turn()
        self._maybe_checkpoint()
        return self._may_go_on()

    async def finish(self) -> tuple[str, int]:
        """Wait until everything is hashed and written; not yet durable: that is the barrier's work."""
        self._turn(final=True)
        await asyncio.to_thread(self._wait)
        return self._result()

    def finish_now(self) -> tuple[str, int]:
        """Do the same in a thread that may block."""
        self._turn(final=True)
        self._wait()
        return self._result()

    async def stop(self) -> int:
        """Keep what came for a later epoch: make it durable, close the part, give the offset that counts."""
        return await asyncio.to_thread(self.stop_now)

    def stop_now(self) -> int:
        """Do the same in a thread that may block; also after a `finish` that nobody waited for to its end."""
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
        """Throw the part away; in a thread, because removing a large file takes its time."""
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
        """Hand the current buffer to both lanes; begin another unless this was the last."""
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
        end = self._fill - self._fill % disk.BLOCK
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
        except Exception as error:  # noqa: BLE001 - reaches the feeder, which is in another thread
            self._failed = error
        self._done(stretch)

    def _pass(self, mark: _Mark) -> None:
        """Note that a lane has come to a mark; the second one asks for the checkpoint, behind what was written so far."""
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
        except Exception as error:  # noqa: BLE001 - reaches the feeder, which is in another thread
            self._failed = StoreError(f"writing a part: {type(error).__name__}")
        self._done(stretch)

    def _write_stretch(self, stretch: _Stretch) -> None:
        end = stretch.end
        if stretch.final and self._direct and end % disk.BLOCK:
            padded = end + disk.BLOCK - end % disk.BLOCK
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
