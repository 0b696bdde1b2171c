"""Where a body goes: a small one stays in memory, a large one streams through a pump into a part.

Nothing here blocks the event loop: what touches the disk (making a part, setting room aside, starting over) happens in a
thread while the transfer is paused. `domain.transfer.resume` decides what an answer means.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from longshore.domain.model import Lease
from longshore.domain.transfer.content_checks import JUDGE_BYTES
from longshore.domain.transfer.declared_digests import kept_fields, with_digests
from longshore.domain.transfer.resume import ComparePrefix, Continue, Decision, Restart
from longshore.errors import LongshoreError, Reasoned, StoreError
from longshore.worker.failures import failure_of
from longshore.worker.silent_transfers import LastByte

if TYPE_CHECKING:
    from longshore.domain.transfer.response_head import Head
    from longshore.store import Part, PartFacts, PartWriter, Store

T = TypeVar("T")
FIRST_BYTES: Final = JUDGE_BYTES
Judge = Callable[["Head"], Decision | None]  # None: a fresh object


class AskAgain(Reasoned):
    """Neither the held bytes nor this answer are of use: ask once more, from zero. `why` is the ladder's word for it."""

    def __init__(self, why: str, message: str) -> None:
        super().__init__("prefix_mismatch" if why == "prefix_mismatch" else "bad_range", message)
        self.why = why


class BodySink:
    """The sink of one transfer. After the transfer: `finish` or `abandon`, always one of them."""

    resume: Callable[[], None]

    def __init__(
        self,
        store: Store,
        lease: Lease,
        url: str,
        threads: Executor,
        *,
        judge: Judge,
        small_bytes: int,
        adopted: Part | None = None,
        on_large: Callable[[BodySink], None],
        caller: Callable[[str], str] = lambda _final_url: "",
        last_byte: LastByte | None = None,
    ) -> None:
        self._store, self._lease, self.url, self._threads = store, lease, url, threads
        self._judge, self._small, self._on_large, self._caller = judge, small_bytes, on_large, caller
        self._last_byte = last_byte or LastByte()
        self._part = adopted
        self._pieces: list[bytes] = []
        self._in_memory = 0
        self._pump: PartWriter | None = None
        self._opening: asyncio.Task[None] | None = None
        self._failed: LongshoreError | None = None
        self._overlap = 0  # bytes still to be compared with what we hold
        self._overlap_from = 0
        self._overlap_hash = hashlib.sha256()
        self.head: Head | None = None
        self.decision: Decision | None = None
        self.first = b""
        self.received = 0
        self.resumed_from = 0
        self.total: int | None = None
        self.kept: PartFacts | None = None  # what `abandon` made durable
        self.task: asyncio.Task[Any] | None = None  # the one that waits for this transfer
        self.connected_to = ""  # the host that the last request was sent to

    # ── called by the transfer ──

    def sent(self, host: str) -> None:
        """Note that there is a connection, and the request goes out."""
        self.connected_to = host

    def begin(self, head: Head) -> None:
        """Decide what this answer is worth, before its body."""
        self.head, self.total = head, head.total
        self.decision = decision = self._judge(head)
        match decision:
            case Continue():
                self._go_on(head)
            case ComparePrefix(offset, upto):
                self._overlap, self._overlap_from = upto - offset, offset
                self._go_on(head)
            case Restart(reason, again) if again:
                raise AskAgain(reason, f"the answer to a range request is of no use: {reason}")
            case _:
                if head.length is not None and head.length > self._small:
                    self._open(head, start_over=self._part is not None)

    def write(self, data: bytes) -> bool:
        """Take the next bytes; False while the disk has to catch up."""
        if self._failed is not None:
            raise self._failed
        self.received += len(data)
        self._last_byte.at = time.monotonic()
        if self._overlap:
            data = self._compare(data)
        if len(self.first) < FIRST_BYTES and not self.resumed_from:
            self.first += data[: FIRST_BYTES - len(self.first)]
        if self._pump is not None:
            return self._pump.feed(data)
        self._pieces.append(data)
        self._in_memory += len(data)
        if self._opening is None:
            if self._in_memory <= self._small:
                return True
            assert self.head is not None
            self._open(self.head, start_over=self._part is not None)
        return False

    def room(self) -> memoryview | None:
        """Return memory to receive into; None while bytes must be looked at on their way."""
        if self._failed is not None:
            raise self._failed
        unseen = len(self.first) < FIRST_BYTES and not self.resumed_from
        return None if self._pump is None or self._overlap or unseen else self._pump.room()

    def filled(self, count: int) -> bool:
        """Take what was received into `room`."""
        assert self._pump is not None
        self.received += count
        self._last_byte.at = time.monotonic()
        return self._pump.filled(count)

    # ── called by the flow ──

    @property
    def large(self) -> bool:
        """Return whether the body has left memory."""
        return self._opening is not None

    @property
    def waits_for_disk(self) -> bool:
        """Whether the transfer stands still because of us."""
        return self._opening is not None and (self._pump is None or self._pump.paused)

    @property
    def done_bytes(self) -> int:
        """How much of the object is here."""
        return self._overlap_from + self.received if self._overlap else self.resumed_from + self.new_bytes

    @property
    def new_bytes(self) -> int:
        """How many bytes came that were not here before."""
        match self.decision:
            case ComparePrefix(offset, upto):
                return max(0, self.received - (upto - offset))
            case _:
                return self.received

    @property
    def has_resumed(self) -> bool:
        """Return whether the answer began after bytes that were here before; False if it sent them all again."""
        match self.decision:
            case ComparePrefix(offset, _):
                return offset > 0
            case _:
                return self.resumed_from > 0

    async def finish(self) -> tuple[bytes | Part, str, int]:
        """Return the body, its SHA-256 and its size; a large one is written, but not yet durable."""
        if self._opening is not None:
            await self._opening
        if self._failed is not None:
            raise self._failed
        if self._overlap:
            raise AskAgain("prefix_mismatch", "the server's object is shorter than what we hold of it")
        if self._pump is not None and self._part is not None:
            sha256, size = await self._pump.finish()
            self._pump = None  # only now: a cancellation before this must not touch a part that is being written
            return self._part, sha256, size
        if self._part is not None:
            await self._drop_worthless_part()
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        return body, hashlib.sha256(body).hexdigest(), len(body)

    def fail(self, error: LongshoreError) -> None:
        """Stop: the next bytes, or the end, raise this."""
        self._failed = self._failed or error
        if self._pump is not None:
            self.resume()

    async def take_part(self) -> tuple[Part, str, int]:
        """Return the held part as it is: the server says that nothing is missing."""
        part = self._part
        assert part is not None
        self.resumed_from = part.size_bytes
        self.first = await self._in_thread(part.read_back, 0, min(FIRST_BYTES, part.size_bytes))
        return part, part.sha256, part.size_bytes

    async def abandon(self, *, keep: bool) -> None:
        """Abandon the body: sync the received bytes for a later attempt, or delete them."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        pump, part = self._pump, self._part
        self._part = self._pump = None
        keep = keep and self._failed is None and not self._overlap
        if keep and part is not None and self.head is not None and part.facts.headers is not None:
            headers = with_digests(
                part.facts.headers, self.head.headers
            )  # pieces may have declared some since it began
            part.facts = replace(part.facts, headers=headers)
        if pump is not None:
            await (pump.stop() if keep else pump.abandon())
        elif part is not None:
            await self._in_thread(_put_away, part, keep)
        elif keep and self._is_worth_a_part():
            part = await self._saved()
        self.kept = part.facts if keep and part is not None else None

    # ── inside ──

    def _is_worth_a_part(self) -> bool:
        """Return whether the next attempt could go on from the bytes of a small body that was cut short."""
        head = self.head
        return (
            bool(self._in_memory)
            and head is not None
            and head.status == 200
            and head.validators.strong_etag is not None
        )

    async def _saved(self) -> Part | None:
        """Make the bytes in memory durable for a later attempt."""
        assert self.head is not None
        try:
            part = await self._in_thread(self._make_part, self.head, False)
        except (LongshoreError, OSError):
            return None  # they are only worth a little; the attempt's own reason is what counts
        pump = self._store.pump(part, lambda: None)
        for piece in self._pieces:
            pump.feed(piece)
        await pump.stop()
        return part

    def _go_on(self, head: Head) -> None:
        assert self._part is not None
        self.resumed_from = self._part.size_bytes
        self._open(head, start_over=False)

    def _open(self, head: Head, *, start_over: bool) -> None:
        self._opening = asyncio.get_running_loop().create_task(self._opened(head, start_over=start_over))

    async def _opened(self, head: Head, *, start_over: bool) -> None:
        try:
            self._part = await self._in_thread(self._make_part, head, start_over)
            self._on_large(self)
            self._pump = pump = self._store.pump(self._part, self.resume)
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                pump.feed(piece)
        except LongshoreError as error:
            self._failed = error
        except OSError as error:  # a disk that does not read: without this the transfer would stay paused for ever
            self._failed = StoreError(f"opening a part: {error.strerror}")
        except Exception as error:  # noqa: BLE001 -- no thread, no memory: whatever it is, the transfer must not stay paused
            failure = failure_of(error)
            self._failed = Reasoned(failure.reason, failure.message)
        self.resume()

    def _make_part(self, head: Head, start_over: bool) -> Part:
        """Reserve disk space, then create or continue the part; without a reservation no part is created."""
        lease = self._lease
        need = None if head.total is None else max(0, head.total - self.resumed_from)
        reservation = self._store.reserve_for_part(lease.scope, lease.job_id, lease.epoch, need)
        part = self._part
        try:
            part = part or self._store.part(lease.scope, lease.job_id, lease.epoch)
            if start_over:
                part.restart()
            elif self.resumed_from:
                self.first = part.read_back(0, min(FIRST_BYTES, self.resumed_from))
            earlier = (
                part.facts.headers if self.resumed_from else None
            ) or {}  # what this version declared still holds
            part.begin(
                url=self.url,
                final_url=head.url,
                validators=head.validators,
                total=head.total,
                headers=with_digests({**earlier, **kept_fields(head.headers)}, earlier),
                delimited=head.delimited,
                caller=self._caller(head.url),
                preallocate=self._store.preallocation(head.total, reservation.nbytes + self.resumed_from),
            )
        except BaseException:
            reservation.release()
            if part is not None and part is not self._part:
                part.discard()  # not registered anywhere yet
            raise
        part.reservation = reservation
        return part

    def _compare(self, data: bytes) -> bytes:
        """Compare what comes again with what we hold, without writing it; give what comes after it."""
        assert self._part is not None
        same, rest = data[: self._overlap], data[self._overlap :]
        self._overlap_hash.update(same)
        self._overlap -= len(same)
        if self._overlap:
            return b""
        held = self._part.sha256 if not self._overlap_from else self._held_from(self._overlap_from)
        if self._overlap_hash.hexdigest() != held:
            self._overlap = 1  # the part is worthless: none of its bytes may be kept
            raise AskAgain("prefix_mismatch", "the server's bytes differ from the ones we hold")
        return rest

    def _held_from(self, offset: int) -> str:
        assert self._part is not None
        return hashlib.sha256(self._part.read_back(offset, self._part.size_bytes - offset)).hexdigest()

    async def _drop_worthless_part(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            await self._in_thread(part.discard)

    def _in_thread(self, call: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)


def _put_away(part: Part, keep: bool) -> None:
    """Close a part that no pump feeds any more, with what it has made durable first if that is of use."""
    if keep and not part.closed:
        part.checkpoint()
        part.close()
    else:
        part.discard()


__all__ = ["AskAgain", "BodySink"]
