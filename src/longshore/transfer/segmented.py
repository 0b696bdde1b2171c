"""Fetch one body over several connections and deliver it in order, with a window of pieces ahead of the due byte.

The sink sees the same calls as for a single stream: one `begin`, then bytes in order. So hashing, writing and resuming
need no changes: only a contiguous prefix is ever delivered. The first request is an ordinary one. Other connections
fetch pieces ahead of it only if its stream is slow and the object has ranges and a strong validator. Every piece is
validated like a resumed download, and must come from the URL of the first response.

Coordination: a stream is one task that fetches one piece, independent of the others. Every event (a stream ended,
bytes were delivered, the sink resumed) calls `_settle`, which executes the decision of the pure function `next_step`:
start a stream for a piece, wait, or give up the pieces. Decisions are central because streams that decided for
themselves whether others remained could all end in the same loop iteration.

Invariant: until the body is complete, a stream is receiving or the sink has paused delivery. A piece never waits at the
descriptor gate, because the first stream holds a slot there: no piece is started while descriptors are scarce.

Failures: a failed piece is requeued, and one connection fewer is used. If pieces do not work, one stream fetches the
rest: the first stream if it still runs, otherwise a new one from the due byte. Its outcome is the outcome of the fetch.
The first stream ends only after a whole piece came and none has failed since: a valid head proves nothing about the
bytes after it. Pieces are as long as the first stream's own, so a good server has sent one about when that one ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Final

from longshore.domain.reasons import Kind, reason_named
from longshore.domain.transfer.declared_digests import with_digests
from longshore.domain.transfer.job_headers import headers_for
from longshore.domain.transfer.response_head import Head
from longshore.domain.transfer.segments import Split, Step, identity, next_step, piece_fault, split
from longshore.errors import Reasoned
from longshore.transfer.api import Answer, FetchRequest, Sink
from longshore.transfer.client import NoPieceError, Transfer

LOOK_S: Final = 0.2  # how long the first stream is measured before more are started
ATTEMPTS: Final = 3  # of one piece
_Fetch = Callable[[FetchRequest, Sink], Coroutine[None, None, Answer]]


class Slots:
    """The slots for further connections to the host. This default is unlimited."""

    def take(self) -> bool:
        """Acquire a slot for one more connection; return False if none is free."""
        return True

    def give(self) -> None:
        """Release one slot."""


async def fetch_in_pieces(
    transfer: Transfer, ask: FetchRequest, sink: Sink, *, connections: int, slots: Slots | None = None
) -> Answer:
    """Fetch like `Transfer.fetch`, over up to `connections` connections if it helps; the caller holds one slot."""
    if connections < 2 or ask.end is not None:
        return await transfer.fetch(ask, sink)
    plain = replace(ask, deadline_s=0.0, cancel=None)  # the limits apply to the whole fetch, not to each piece
    return await transfer.guard(ask, _Window(transfer, plain, sink, connections, slots or Slots()).run())


def _nothing() -> None:
    """Resume a source that is not paused."""


class _Piece:
    """Bytes [start, end) and how many of them were received, over one or more streams."""

    def __init__(self, start: int, end: int | None) -> None:
        self.start = start
        self.end = end  # None: to the end of the object
        self.received = 0
        self.waiting: deque[bytes] = deque()  # received, not delivered
        self.spill: list[bytes] = []  # received beyond the end, in case the end moves
        self.attempts = 0

    @property
    def at(self) -> int:
        """The next byte that is missing."""
        return self.start + self.received

    @property
    def complete(self) -> bool:
        """Return whether all bytes were received."""
        return self.end is not None and self.at >= self.end

    def take(self, data: bytes) -> None:
        """Keep the bytes of the piece; bytes beyond it are kept until other streams are known to fetch them."""
        if self.end is not None and self.at + len(data) > self.end:
            self.spill.append(data[self.end - self.at :])
            data = data[: self.end - self.at]
        self.received += len(data)
        self.waiting.append(data)

    def reopen(self) -> None:
        """Extend the piece to the end of the object."""
        self.end = None
        for data in self.spill:
            self.take(data)
        self.spill.clear()


class _Stream:
    """The sink of one request for one piece. A dropped stream ignores further bytes of its connection."""

    resume: Callable[[], None]

    def __init__(self, window: _Window, piece: _Piece) -> None:
        self.window, self.piece = window, piece
        self.resume = _nothing
        self.alive = True
        self.paused = False
        self.parked = False  # at the end of its piece, until other streams are known to continue

    def begin(self, head: Head) -> None:
        """Check the response against the first one."""
        if self.alive:
            self.window.check(self, head)

    def write(self, data: bytes) -> bool:
        """Take what belongs to the piece; False pauses the connection."""
        if not self.alive:
            return False
        self.piece.take(data)
        go_on = self.window.deliver(self.piece)
        if self.piece.complete and self.window.reached_the_end_of_its_piece(self):
            return False
        self.paused = not go_on
        return go_on


class _Window:
    """The state of one such fetch; everything runs on the loop. `order` holds the pieces from the due byte on."""

    def __init__(self, transfer: Transfer, ask: FetchRequest, sink: Sink, connections: int, slots: Slots) -> None:
        self._transfer, self._ask, self._sink, self._slots = transfer, ask, sink, slots
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._first = _Piece(ask.start, None)
        self._order: deque[_Piece] = deque([self._first])
        self._todo: list[_Piece] = []
        self._due = ask.start
        self._head: Head | None = None
        self._object: tuple[str, int] | None = None  # entity tag and length, if pieces can be verified
        self._split: Split | None = None
        self._frontier = 0  # the first byte that is not assigned to a stream
        self._held = self._was_held = False
        self._streams: dict[asyncio.Task[Answer], _Stream] = {}
        self._first_stream: _Stream | None = None  # while it runs
        self._leaving: set[asyncio.Task[Answer]] = set()  # canceled, not yet ended
        self._hired = 0  # slots beside the caller's own
        self._started = 0
        self._proved = False  # a whole piece came, and none has failed since
        self._single = False
        self._over: asyncio.Future[Answer | None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> Answer:
        started = self._loop.time()
        self._first_stream = self._start(self._first, self._transfer.fetch, self._ask)
        try:
            answer = await self._over
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in list(self._streams):
                self._drop(task)
            await asyncio.gather(*self._leaving, return_exceptions=True)
            self._shrink_to(0)
        if answer is not None:
            return replace(answer, received_bytes=self._due - self._ask.start)
        assert self._head is not None
        return Answer(self._head, self._due - self._ask.start, self._loop.time() - started, self._started, "")

    # --- streams

    def _start(self, piece: _Piece, fetch: _Fetch, ask: FetchRequest) -> _Stream:
        stream = _Stream(self, piece)
        task = self._loop.create_task(fetch(ask, stream))
        self._streams[task] = stream
        self._started += 1
        task.add_done_callback(self._ended)
        return stream

    def _drop(self, task: asyncio.Task[Answer]) -> None:
        """End a stream and ignore its later bytes."""
        stream = self._streams.pop(task)
        stream.alive = False
        if stream is self._first_stream:
            self._first_stream = None
        self._leaving.add(task)
        task.cancel()

    def _ended(self, task: asyncio.Task[Answer]) -> None:
        error = None if task.cancelled() else task.exception()
        self._leaving.discard(task)
        stream = self._streams.pop(task, None)
        if stream is None:  # dropped before
            return
        stream.alive = False
        if stream is self._first_stream:
            self._first_stream = None
        if self._over.done():
            return
        if task.cancelled():
            self._over.cancel()  # canceled from outside: the loop is being closed
        elif error is not None:
            self._stumbled(stream.piece, error)
        elif self._split is None:
            self._over.set_result(task.result())
        elif stream.piece.complete and stream.piece is not self._first:
            self._proved = True
        elif stream.piece.end is not None and not stream.piece.complete:
            self._stumbled(stream.piece, Reasoned("truncated", "the piece ended early"))
        elif self._single and stream.piece.at < self._total:
            self._fail(Reasoned("truncated", f"{stream.piece.at} of {self._total} bytes"))
        self._advance()

    def _stumbled(self, piece: _Piece, error: BaseException) -> None:
        """Decide whether a stream's failure affects only its piece or the whole body."""
        if isinstance(error, NoPieceError):
            self._go_on_with_one()
        elif not isinstance(error, Reasoned):
            self._fail(error)
        elif self._split is None or self._single:
            self._fail(_of_the_rest(error) if self._single else error)
        elif error.reason == "digest_mismatch":
            self._fail(error)  # bytes of the piece may be delivered already
        elif not piece.complete:  # a first stream that failed while parked has all its bytes
            piece.attempts += 1
            self._proved = False
            if reason_named(error.reason).kind is not Kind.TRANSIENT or piece.attempts >= ATTEMPTS:
                self._go_on_with_one()
            else:
                self._todo.append(piece)
                self._shrink_to(max(0, self._hired - 1))  # the server may limit the number of connections

    def _fail(self, error: BaseException) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def _advance(self) -> None:
        """Deliver the bytes that are due and decide the next step."""
        try:
            if self._order:
                self.deliver(self._order[0])
        except BaseException as error:  # noqa: BLE001  passed to the caller of the fetch
            self._fail(error)
        self._settle()

    def _settle(self) -> None:
        """Execute the steps that `next_step` returns until it returns to wait."""
        while self._split is not None and not self._single and not self._over.done():
            parked = self._first_stream is not None and self._first_stream.parked
            if parked and self._proved:
                self._hand_over()
                return
            step = next_step(
                moving=len(self._streams) - parked,
                parked=parked,
                connections=1 + self._hired,
                pieces=self._has_piece(),
                held=self._held,
                short=self._transfer.short,
            )
            if step is Step.FETCH:
                piece = self._next_piece()
                self._start(piece, self._transfer.fetch_piece, self._ask_for(piece))
                continue
            if step is Step.ONE_STREAM:
                self._go_on_with_one()
            elif self._frontier >= self._total and not self._todo:
                self._shrink_to(max(0, len(self._streams) - 1))  # no piece is left for them
            return

    def _shrink_to(self, hired: int) -> None:
        while self._hired > hired:
            self._hired -= 1
            self._slots.give()

    # --- the first stream

    def check(self, stream: _Stream, head: Head) -> None:
        """Check the head of a response for a piece: pass the first to the sink; later ones must match it exactly."""
        if self._head is None:
            self._head = head
            self._sink.resume = self._resumed
            self._sink.begin(head)
            self._object = identity(head, self._ask.start)
            if self._object is not None:
                self._timer = self._loop.call_later(LOOK_S, self._look, self._loop.time(), self._due)
            return
        assert self._object is not None
        piece, total = stream.piece, self._object[1]
        end = total if piece.end is None else piece.end
        fault = piece_fault(self._head, head, start=piece.at, end=end)
        if fault is not None:
            if piece.end is not None:
                raise NoPieceError(fault)
            raise Reasoned("object_changed", f"the object changed while it was fetched ({fault})")
        self._head.headers = with_digests(self._head.headers, head.headers)  # they apply to the whole object, too

    def reached_the_end_of_its_piece(self, stream: _Stream) -> bool:
        """Pause the first stream at the end of its piece until other streams take over; then it ends."""
        if stream is not self._first_stream or self._single or self._over.done():
            return False
        if not stream.parked:
            stream.parked = True
            self._loop.call_soon(self._settle)  # not inside libcurl's callback
        return True

    def _hand_over(self) -> None:
        """End the first stream: others fetch the bytes after its piece."""
        self._drop(next(task for task, stream in self._streams.items() if stream is self._first_stream))
        self._advance()

    def _look(self, since: float, had: int) -> None:
        """Decide whether more connections would help, by the first stream's progress since the last check."""
        now = self._loop.time()
        rate = (self._due - had) / max(now - since, 1e-6)
        found = split(
            left_bytes=self._total - self._due, rate_bytes_s=rate, count=self._connections, ours=self._was_held
        )
        self._was_held = self._held
        if self._over.done() or self._first_stream is None:
            return
        if self._transfer.short:
            found = None  # pieces would take the descriptors of other bodies
        while found is not None and self._hired < found.count - 1 and self._slots.take():
            self._hired += 1
        if found is None or not self._hired:
            self._timer = self._loop.call_later(5 * LOOK_S, self._look, now, self._due)
            return
        self._split = found
        self._first.end = self._frontier = min(self._total, self._first.at + found.piece)
        self._settle()

    @property
    def _total(self) -> int:
        assert self._object is not None
        return self._object[1]

    # --- pieces

    def _has_piece(self) -> bool:
        assert self._split is not None
        return bool(self._todo) or (self._frontier < self._total and self._frontier - self._due < self._split.window)

    def _next_piece(self) -> _Piece:
        assert self._split is not None
        if self._todo:
            piece = min(self._todo, key=lambda one: one.start)
            self._todo.remove(piece)
            return piece
        end = min(self._frontier + self._split.piece, self._total)
        piece = _Piece(self._frontier, end)
        self._frontier = end
        self._order.append(piece)
        return piece

    def _ask_for(self, piece: _Piece) -> FetchRequest:
        """Return a request for a piece's missing bytes, to the first response's URL; headers stay at their origin."""
        assert self._object is not None and self._head is not None
        url = self._head.url if self._head.hops else self._ask.url  # the requested URL may contain credentials
        return replace(
            self._ask,
            url=url,
            headers=headers_for(self._ask.headers, self._ask.url, url),
            start=piece.at,
            end=None if piece.end is None else piece.end - 1,
            if_range=self._object[0],
            if_none_match=None,
            if_modified_since=None,
        )

    def _go_on_with_one(self) -> None:
        """Discard the pieces ahead: continue the first stream, or start one at the next missing byte."""
        if self._over.done() or self._single:
            return
        self._single = True
        first = self._first_stream
        for task, stream in list(self._streams.items()):
            if stream is not first:
                self._drop(task)
        self._shrink_to(0)
        self._todo.clear()
        piece = self._order[0] if self._order else _Piece(self._due, None)  # the first stream keeps its piece
        self._order = deque([piece])
        piece.reopen()
        if first is None:
            self._start(piece, self._transfer.fetch, self._ask_for(piece))
        else:
            first.paused, first.parked = first.paused or first.parked, False
        if not self._held:
            self._resumed()

    # --- delivering in order

    def deliver(self, piece: _Piece) -> bool:
        """Pass the received bytes that are due to the sink until it pauses; return False if this stream may pause."""
        order = self._order
        if not order or piece is not order[0] or self._over.done():
            return True  # ahead of the due byte: bounded by the piece's length
        before = self._due
        while order and not self._held:
            first = order[0]
            while first.waiting and not self._held:
                self._give(first.waiting.popleft())
            if first.waiting or not first.complete or (first is self._first and self._first_stream is not None):
                break  # the first stream keeps its piece until others have taken over
            order.popleft()
        if self._split is not None and self._due >= self._total:
            if not self._over.done():
                self._over.set_result(None)
        elif self._due > before and len(self._streams) <= self._hired:
            self._settle()  # there is room for another piece
        return not self._held

    def _give(self, data: bytes) -> None:
        self._due += len(data)
        try:
            if data and not self._sink.write(data):
                self._held = self._was_held = True
        except BaseException as error:
            self._fail(error)  # the sink failed: no other stream can help
            raise

    def _resumed(self) -> None:
        """Continue after the sink's pause: deliver the waiting bytes, then resume the streams."""
        self._held = False
        if self._over.done():
            return
        self._advance()
        for stream in list(self._streams.values()):
            if stream.paused and not self._held:
                stream.paused = False
                stream.resume()


def _of_the_rest(error: Reasoned) -> Reasoned:
    """Return the error for a failed rest: its status does not describe the object, which existed before."""
    if reason_named(error.reason).kind in (Kind.PERMANENT, Kind.POLICY):
        return Reasoned(
            "truncated", f"the rest was refused ({error.reason}): {error}", retry_after_s=error.retry_after_s
        )
    return error
