"""From received bytes to published ones, in batches: as many as are ready share their barriers and their commits.

    stage (bytes durable under private names)  ┐
    FINALIZE intents + stage FINALIZED         ┴→ link → (the settler registers) → clean

`link` comes after both, so that a blob never appears without its bytes on disk and its intent in the ledger.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from longshore import failpoints
from longshore.domain.model import Blob, Lease
from longshore.errors import LongshoreError
from longshore.ledger.effects import begin
from longshore.ledger.records import Intent
from longshore.store import PartFacts

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Staged, Store

T = TypeVar("T")
FINALIZE: Final = "FINALIZE"
EPOCHS_LOOKED_AT: Final = 20  # further back, leftovers are the reconciler's
ENOUGH_BYTES: Final = 16 << 20  # a batch that has so much to write gains nothing from waiting
WAIT_S: Final = 0.1  # how long a body waits for company while transfers go on that may bring some
failpoints.declare("publish.begin", "publish.staged", "publish.intents", "publish.linked", "publish.clean")


@dataclass(frozen=True, slots=True)
class Parcel:
    """One finished body on its way into the store."""

    lease: Lease
    staged: Staged
    record: dict[str, Any]  # what adoption needs after a crash: type, validators, final URL
    done: asyncio.Future[Blob]


class Publisher:
    """Publishes bodies batch by batch; two batches are under way at once so that disk and ledger overlap.

    A batch costs two barriers and two commits, whatever its size. So it leaves when it is full, when its first body has
    waited for `WAIT_S`, or at once when nothing is on its way that could join it.
    """

    def __init__(self, ledger: Ledger, store: Store, threads: ThreadPoolExecutor, *, items: int, size: int) -> None:
        self._ledger, self._store, self._threads = ledger, store, threads
        self._items, self._size = items, size
        self._ready: list[Parcel] = []
        self._ready_bytes = 0  # of bodies in memory
        self._lanes = 2
        self._busy: set[asyncio.Task[None]] = set()
        self._published: dict[tuple[str, int], list[Staged]] = {}
        self._over: list[Staged] = []
        self._starting = False
        self._since = 0.0  # when the first of those who are ready came
        self._timer: asyncio.TimerHandle | None = None
        self.waiting_bytes = 0
        self.on_change: Callable[[int], None] = lambda _waiting: None
        self.more_come: Callable[[], bool] = lambda: False  # whether transfers go on

    def publish(self, lease: Lease, staged: Staged, record: dict[str, Any]) -> asyncio.Future[Blob]:
        """Hand over a body; the future gives its blob, durable and under its name."""
        loop = asyncio.get_running_loop()
        parcel = Parcel(lease, staged, record, loop.create_future())
        if not self._ready:
            self._since = loop.time()
        self._ready.append(parcel)
        if isinstance(staged.body, bytes):
            self._ready_bytes += staged.size_bytes
            self.waiting_bytes += staged.size_bytes
            self.on_change(self.waiting_bytes)
        if not self._starting:
            self._starting = True
            loop.call_soon(self._start)
        return parcel.done

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
        """Wait until everything handed in is published or refused."""
        self.more_come = lambda: False
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
        """Tell whether what is ready should leave now; if not, see to it that it does in time."""
        if len(self._ready) >= self._items or self._ready_bytes >= ENOUGH_BYTES or not self.more_come():
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

    def _next_batch(self) -> list[Parcel]:
        size = count = 0
        for parcel in self._ready[: self._items]:
            size += parcel.staged.size_bytes if isinstance(parcel.staged.body, bytes) else 0
            count += 1
            if size >= self._size:
                break
        batch, self._ready = self._ready[:count], self._ready[count:]
        self._ready_bytes -= size
        self._since = asyncio.get_running_loop().time()
        return batch

    async def _batch(self, batch: list[Parcel]) -> None:
        try:
            batch = await self._stage(batch)
            await self._link(batch)
        except Exception as error:  # noqa: BLE001 -- whatever it is, somebody waits for each of these and must hear of it
            for parcel in batch:
                _refuse(parcel, error)

    async def _stage(self, batch: list[Parcel]) -> list[Parcel]:
        """Make bytes and intents durable side by side; give those for which both worked."""
        failpoints.hit("publish.begin")
        items = [parcel.staged for parcel in batch]
        staging = self._thread(self._store.stage, items)
        writing = self._ledger.soon(write_intents, batch)
        both: list[asyncio.Future[Any]] = [staging, writing]
        await asyncio.wait(both)  # both end before anybody decides: the bytes are in use until then
        failpoints.hit("publish.staged")
        self._relieve(items)
        stored, written = staging.result(), writing.result()
        alive = []
        for parcel, no_bytes, no_intent in zip(batch, stored, written, strict=True):
            if problem := no_bytes or no_intent:
                _refuse(parcel, problem)
            else:
                alive.append(parcel)
        failpoints.hit("publish.intents")
        return alive

    async def _link(self, batch: list[Parcel]) -> None:
        blobs = await self._thread(self._store.link, [parcel.staged for parcel in batch]) if batch else []
        failpoints.hit("publish.linked")
        for parcel, blob in zip(batch, blobs, strict=True):
            if isinstance(blob, Blob):
                self._published.setdefault((parcel.lease.job_id, parcel.lease.epoch), []).append(parcel.staged)
                if parcel.done.cancelled():  # the attempt was stopped meanwhile: nobody else will clean up
                    self.clean(parcel.lease)
                else:
                    parcel.done.set_result(blob)
            else:
                _refuse(parcel, blob)

    def _relieve(self, items: list[Staged]) -> None:
        self.waiting_bytes -= sum(item.size_bytes for item in items if isinstance(item.body, bytes))
        self.on_change(self.waiting_bytes)

    def _thread(self, call: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)


def write_intents(tx: Any, batch: Sequence[Parcel]) -> list[LongshoreError | None]:
    """In one transaction: each FINALIZE intent, which makes the stage FINALIZED a durable fact and frees the host's slot."""
    begun = begin(tx, [intent(parcel) for parcel in batch])
    return [start if isinstance(start, LongshoreError) else None for start in begun]


def intent(parcel: Parcel) -> Intent:
    """Say what is about to be published, so that a crash after the link is adopted and not repeated."""
    staged = parcel.staged
    key = finalize_key(staged.job_id, staged.sha256)
    request = {"sha256": staged.sha256, "size_bytes": staged.size_bytes, **parcel.record}
    return Intent(parcel.lease, FINALIZE, key, "verifiable", staged.sha256, request)


def finalize_key(job_id: str, sha256: str) -> str:
    """Give `op_key("FINALIZE", job_id, sha256=sha256)`, without the way there: it is needed once per file."""
    text = f'{{"job":"{job_id}","kind":"FINALIZE","sha256":"{sha256}","v":1}}'
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse(parcel: Parcel, error: BaseException) -> None:
    body = parcel.staged.body
    if not isinstance(body, bytes):
        body.close()
    if not parcel.done.done():
        parcel.done.set_exception(error)
