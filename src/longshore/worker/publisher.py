"""Publish bodies in batches: those that are ready share their fsync barriers and their commits.

    stage (bytes durable under private names)  ┐
    FINALIZE intents + stage FINALIZED         ┴→ link → (the settler registers) → clean

Problem: the publish protocol (`publish_protocol`, which says why its order is this one) costs two fsync barriers and two
commits. Paid per file, they limit a worker to some hundred small files per second.

Invariant: `link` begins when both the staging and the intents of its batch have ended. A body whose staging or intent
failed leaves the batch and its future raises; the others go on. Every future that `publish` returned is resolved.

Order: staging runs in a thread while the ledger commits the intents, and two batches are under way at once, so disk and
ledger overlap. A batch leaves when it is full, when it has 16 MiB, when its first body has waited for 0.1 s, or at once
when no transfer goes on that could join it: a single file never waits.

Not done: a fixed interval (a single file would pay it), one thread per file (barriers cannot be shared). Tried: waits of
0.05 s (more CPU) and 0.2 s (no difference), see ADR 0006.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from longshore import failpoints
from longshore.domain.model import Blob, Lease
from longshore.store import PartFacts
from longshore.worker.publish_protocol import finalize_intent, write_intents

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Staged, Store

T = TypeVar("T")
EPOCHS_LOOKED_AT: Final = 20  # leftovers of older epochs are removed by the reconciler
ENOUGH_BYTES: Final = 16 << 20  # a batch of this size gains nothing from waiting
WAITING_BYTES: Final = 48 << 20  # bodies in memory beyond which no new transfer begins
WAIT_S: Final = 0.1  # how long a body waits for others to join its batch while transfers are running


@dataclass(frozen=True, slots=True)
class PendingBlob:
    """One finished body on its way into the store."""

    lease: Lease
    staged: Staged
    record: dict[str, Any]  # what adoption needs after a crash: type, validators, final URL
    done: asyncio.Future[Blob]


class Admission(Protocol):
    """The transfers whose bodies come here: whether more may follow, and how to hold new ones back."""

    @property
    def busy(self) -> bool: ...  # noqa: D102
    def open(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class Publisher:
    """Publishes bodies batch by batch; two batches are under way at once so that disk and ledger overlap.

    A batch costs two barriers and two commits, whatever its size. So it leaves when it is full, when its first body has
    waited for `WAIT_S`, or at once when nothing is on its way that could join it.
    """

    def __init__(
        self, ledger: Ledger, store: Store, threads: ThreadPoolExecutor, transfers: Admission, *, items: int, size: int
    ) -> None:
        self._ledger, self._store, self._threads = ledger, store, threads
        self._transfers: Admission | None = transfers  # None: no more bodies will come
        self._items, self._size = items, size
        self._ready: list[PendingBlob] = []
        self._ready_bytes = 0  # of bodies in memory
        self._lanes = 2
        self._busy: set[asyncio.Task[None]] = set()
        self._published: dict[tuple[str, int], list[Staged]] = {}
        self._over: list[Staged] = []
        self._starting = False
        self._since = 0.0  # when the first body of the current batch was added
        self._timer: asyncio.TimerHandle | None = None
        self.waiting_bytes = 0

    def publish(self, lease: Lease, staged: Staged, record: dict[str, Any]) -> asyncio.Future[Blob]:
        """Queue a body; the future returns its blob, durable and under its final name."""
        loop = asyncio.get_running_loop()
        pending = PendingBlob(lease, staged, record, loop.create_future())
        if not self._ready:
            self._since = loop.time()
        self._ready.append(pending)
        if isinstance(staged.body, bytes):
            self._ready_bytes += staged.size_bytes
            self.waiting_bytes += staged.size_bytes
            self._hold_back()
        if not self._starting:
            self._starting = True
            loop.call_soon(self._start)
        return pending.done

    def clean(self, lease: Lease, *, done: bool = False) -> None:
        """Remove what staging still has of a body that is over, registered or not; with all others of this turn.

        When the job is done, what its earlier epochs left goes too.
        """
        if staged := self._published.pop((lease.job_id, lease.epoch), None):
            if not self._over:
                asyncio.get_running_loop().call_soon(self._clean)
            self._over += staged
        if done and (lease.epoch > 1 or lease.job.request.mirrors):  # a candidate that was cut may have left a part
            self._threads.submit(self._drop_leftovers, lease)

    def _drop_leftovers(self, lease: Lease) -> None:
        for epoch in range(max(1, lease.epoch - EPOCHS_LOOKED_AT), lease.epoch + 1):
            self._store.drop_part(PartFacts(lease.scope, lease.job_id, epoch))

    def _clean(self) -> None:
        over, self._over = self._over, []
        failpoints.hit("publish.clean")
        self._threads.submit(self._store.clean, over)

    async def idle(self) -> None:
        """Wait until every queued body is published or has failed."""
        self._transfers = None
        while self._busy or self._ready:
            self._start()
            await asyncio.sleep(0)
            if self._busy:
                await asyncio.wait(self._busy)

    def _start(self) -> None:
        self._starting = False
        while self._ready and len(self._busy) < self._lanes and self._is_due():
            task = asyncio.get_running_loop().create_task(self._batch(self._next_batch()))
            self._busy.add(task)
            task.add_done_callback(self._ended)

    def _is_due(self) -> bool:
        """Return whether the batch should leave now; if not, start the timer that makes it leave."""
        if (
            len(self._ready) >= self._items
            or self._ready_bytes >= ENOUGH_BYTES
            or not (self._transfers and self._transfers.busy)
        ):
            return True
        loop = asyncio.get_running_loop()
        left = self._since + WAIT_S - loop.time()
        if left <= 0:
            return True
        if self._timer is None:
            self._timer = loop.call_later(left, self._in_time)
        return False

    def _in_time(self) -> None:
        self._timer = None
        self._start()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._busy.discard(task)
        self._start()

    def _next_batch(self) -> list[PendingBlob]:
        size = count = 0
        for pending in self._ready[: self._items]:
            size += pending.staged.size_bytes if isinstance(pending.staged.body, bytes) else 0
            count += 1
            if size >= self._size:
                break
        batch, self._ready = self._ready[:count], self._ready[count:]
        self._ready_bytes -= size
        self._since = asyncio.get_running_loop().time()
        return batch

    async def _batch(self, batch: list[PendingBlob]) -> None:
        try:
            batch = await self._stage(batch)
            await self._link(batch)
        except Exception as error:  # noqa: BLE001 -- each of these futures is awaited and must be resolved
            for pending in batch:
                _refuse(pending, error)

    async def _stage(self, batch: list[PendingBlob]) -> list[PendingBlob]:
        """Make bytes and intents durable concurrently; return the bodies for which both succeeded."""
        failpoints.hit("publish.begin")
        items = [pending.staged for pending in batch]
        staging = self._thread(self._store.stage, items)
        intents = [finalize_intent(pending.lease, pending.staged, pending.record) for pending in batch]
        writing = self._ledger.write_async(write_intents, intents)
        both: list[asyncio.Future[Any]] = [staging, writing]
        await asyncio.wait(both)  # wait for both, whatever fails: the bytes are in use until then
        failpoints.hit("publish.staged")
        self._relieve(items)
        if errors := [error for one in both if (error := one.exception()) is not None]:
            raise errors[0]
        stored, written = staging.result(), writing.result()
        alive = []
        for pending, no_bytes, no_intent in zip(batch, stored, written, strict=True):
            if problem := no_bytes or no_intent:
                _refuse(pending, problem)
            else:
                alive.append(pending)
        failpoints.hit("publish.intents")
        return alive

    async def _link(self, batch: list[PendingBlob]) -> None:
        blobs = await self._thread(self._store.link, [pending.staged for pending in batch]) if batch else []
        failpoints.hit("publish.linked")
        for pending, blob in zip(batch, blobs, strict=True):
            if isinstance(blob, Blob):
                self._published.setdefault((pending.lease.job_id, pending.lease.epoch), []).append(pending.staged)
                if pending.done.cancelled():  # the attempt was stopped meanwhile and will not clean up
                    self.clean(pending.lease)
                else:
                    pending.done.set_result(blob)
            else:
                _refuse(pending, blob)

    def _relieve(self, items: list[Staged]) -> None:
        self.waiting_bytes -= sum(item.size_bytes for item in items if isinstance(item.body, bytes))
        self._hold_back()

    def _hold_back(self) -> None:
        """Admit no new transfers while too many bytes wait in memory."""
        if self._transfers is not None:
            self._transfers.close() if self.waiting_bytes > WAITING_BYTES else self._transfers.open()

    def _thread(self, call: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)


def _refuse(pending: PendingBlob, error: BaseException) -> None:
    body = pending.staged.body
    if not isinstance(body, bytes):
        body.close()
    if not pending.done.done():
        pending.done.set_exception(error)
