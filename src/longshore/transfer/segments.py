"""One body over several connections, delivered in order: a window of pieces ahead of the byte that is due.

The sink sees what it would see of a single stream: one `begin`, then bytes in order. Hashing, writing and resuming stay
as they are, because the delivered prefix is all there ever is. The first request is an ordinary one; only when its stream
turns out slow, and the object has ranges and a strong validator, do other connections fetch pieces ahead of it. Every
piece is checked like a resume. Whatever goes wrong with pieces, one stream goes on by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Final

from longshore.domain.heads import Head
from longshore.domain.reasons import Kind, reason_named
from longshore.domain.redirects import read_target
from longshore.domain.segments import Split, identity, piece_fault, split
from longshore.errors import Reasoned
from longshore.transfer.asks import Answer, Ask, Sink
from longshore.transfer.client import Transfer

LOOK_S: Final = 0.2  # how long the first stream is watched before anything is decided
ATTEMPTS: Final = 3  # of one piece


class Slots:
    """Where further connections to the host are asked for. This one always has room."""

    def take(self) -> bool:
        """Take the slot of one more connection, if there is one."""
        return True

    def give(self) -> None:
        """Give one back."""


async def fetch_in_pieces(
    transfer: Transfer, ask: Ask, sink: Sink, *, connections: int, slots: Slots | None = None
) -> Answer:
    """Do what `Transfer.fetch` does, over up to that many connections where it helps. The first slot is the caller's."""
    if connections < 2 or ask.end is not None:
        return await transfer.fetch(ask, sink)
    plain = replace(ask, deadline_s=0.0, cancel=None)  # the whole has the limits, not every piece
    return await transfer.guard(ask, _Window(transfer, plain, sink, connections, slots or Slots()).run())


class _HandOverError(Exception):
    """The first stream has reached bytes that others fetch."""


class _NoPiecesError(Exception):
    """The server's pieces are not what was asked for: one stream must do."""


def _nothing() -> None:
    """Resume a source that is not paused."""


class _Piece:
    """Bytes [start, end), from whoever fetches them: as a sink it takes one answer after the other."""

    resume: Callable[[], None]

    def __init__(self, window: _Window, start: int, end: int | None) -> None:
        self.window = window
        self.start = start
        self.end = end  # None: to the end, wherever that is
        self.received = 0
        self.waiting: deque[bytes] = deque()  # received, not delivered
        self.spill = b""  # received beyond the end, in case that the end moves
        self.attempts = 0
        self.resume = _nothing

    @property
    def at(self) -> int:
        """The next byte that is missing."""
        return self.start + self.received

    @property
    def complete(self) -> bool:
        """Tell whether all of it came."""
        return self.end is not None and self.at >= self.end

    def begin(self, head: Head) -> None:
        """Let the window check the answer."""
        self.window.check(self, head)

    def write(self, data: bytes) -> bool:
        """Take what belongs to the piece; what comes beyond it waits until others are known to fetch it."""
        if self.end is not None and self.at + len(data) > self.end:
            data, self.spill = data[: self.end - self.at], self.spill + data[self.end - self.at :]
        self.received += len(data)
        self.waiting.append(data)
        go_on = self.window.deliver(self)
        return go_on and not (self.complete and self.window.keep_waiting(self))


class _Window:
    """The state of one such fetch; everything runs on the loop. `order` holds the pieces from the due byte on."""

    def __init__(self, transfer: Transfer, ask: Ask, sink: Sink, connections: int, slots: Slots) -> None:
        self._transfer, self._ask, self._sink, self._slots = transfer, ask, sink, slots
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._first = _Piece(self, ask.start, None)
        self._order: deque[_Piece] = deque([self._first])
        self._todo: list[_Piece] = []
        self._due = ask.start
        self._head: Head | None = None
        self._object: tuple[str, int] | None = None  # entity tag and length, where pieces can be trusted
        self._split: Split | None = None
        self._frontier = 0  # the first byte that nobody was told to fetch
        self._held = self._was_held = False
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._first_task: asyncio.Task[None] | None = None
        self._first_runs = True
        self._hired = 0
        self._proved = False  # one piece's answer was right: the server does what it says
        self._single = False
        self._over: asyncio.Future[Answer | None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> Answer:
        started = self._loop.time()
        self._first_task = self._start(self._first_stream())
        try:
            answer = await self._over
        finally:
            if self._timer is not None:
                self._timer.cancel()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if answer is not None:
            return answer
        assert self._head is not None
        return Answer(self._head, self._due - self._ask.start, self._loop.time() - started, len(tasks), "")

    def _start(self, work: Coroutine[None, None, None], *, hired: bool = False) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, hired=hired))
        return task

    def _ended(self, task: asyncio.Task[None], *, hired: bool) -> None:
        self._tasks.discard(task)
        if hired:
            self._hired -= 1
            self._slots.give()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, _NoPiecesError):
            self._back_to_one()
        elif error is not None:
            self._fail(error)
        elif hired and not self._hired and self._first_runs:
            self._back_to_one()  # all others gave up; the first stream may be waiting for them

    def _fail(self, error: BaseException) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    # --- the first stream

    async def _first_stream(self) -> None:
        """Fetch as ever; once others fetch ahead, become one of them."""
        try:
            answer = await self._transfer.fetch(self._ask, self._first)
            if (self._split is None or self._single) and not self._over.done():
                self._over.set_result(replace(answer, received_bytes=self._due - self._ask.start))
        except _HandOverError:
            pass
        except Reasoned as error:
            if self._split is None or self._single:
                raise
            self._put_back(self._first, error)
        finally:
            self._first_runs = False
        if self._split is not None and not self._over.done():
            self.deliver(self._order[0])
            await self._work()

    def check(self, piece: _Piece, head: Head) -> None:
        """Take the head of an answer for a piece: the first is the sink's, every later one must fit it exactly."""
        if self._head is None:
            self._head = head
            self._sink.resume = self._resumed
            self._sink.begin(head)
            self._object = identity(head, self._ask.start)
            if self._object is not None:
                self._timer = self._loop.call_later(LOOK_S, self._look, self._loop.time(), self._due)
            return
        assert self._object is not None
        etag, total = self._object
        fault = piece_fault(head, etag=etag, total=total, start=piece.at, end=total if piece.end is None else piece.end)
        if fault is not None:
            if piece.end is not None:
                raise _NoPiecesError(fault)
            raise Reasoned("object_changed", f"the object changed while it was fetched ({fault})")
        if not self._proved:
            self._proved = True
            self._loop.call_soon(self._first.resume)

    def keep_waiting(self, piece: _Piece) -> bool:
        """Let the first stream stop where others go on, or pause there until it is known that they do."""
        if piece is not self._first or self._single:
            return False
        if self._proved:
            self._first_runs = False
            raise _HandOverError
        return True

    def _look(self, since: float, had: int) -> None:
        """Decide whether more connections would help, by what the first stream did since the last look."""
        assert self._object is not None
        now, total = self._loop.time(), self._object[1]
        rate = (self._due - had) / max(now - since, 1e-6)
        found = split(left_bytes=total - self._due, rate_bytes_s=rate, count=self._connections, ours=self._was_held)
        self._was_held = self._held
        if found is None:
            self._timer = self._loop.call_later(5 * LOOK_S, self._look, now, self._due)
            return
        while self._hired < found.count - 1 and self._slots.take():
            self._hired += 1
            self._start(self._work(), hired=True)
        if not self._hired:
            self._timer = self._loop.call_later(5 * LOOK_S, self._look, now, self._due)
            return
        self._split = found
        self._first.end = self._frontier = min(total, self._first.at + found.piece)

    # --- pieces

    async def _work(self) -> None:
        """Fetch pieces until there are none left."""
        while (piece := await self._next_piece()) is not None:
            try:
                await self._transfer.fetch(self._ask_for(piece), piece)
            except Reasoned as error:
                self._put_back(piece, error)
                if len(self._tasks) > 1:  # fewer connections may be what the server wants
                    return

    async def _next_piece(self) -> _Piece | None:
        assert self._split is not None and self._object is not None
        total = self._object[1]
        while True:
            if self._todo:
                piece = min(self._todo, key=lambda one: one.start)
                self._todo.remove(piece)
                return piece
            if self._frontier < total and self._frontier - self._due < self._split.window:
                piece = _Piece(self, self._frontier, min(self._frontier + self._split.piece, total))
                self._frontier = total if piece.end is None else piece.end
                self._order.append(piece)
                return piece
            self._room.clear()
            await self._room.wait()

    def _ask_for(self, piece: _Piece) -> Ask:
        """Ask for what is missing of a piece, where the first answer came from; a job's headers stay at their origin."""
        assert self._object is not None and self._head is not None
        moved = self._head.hops and read_target(self._head.url).origin != read_target(self._ask.url).origin
        return replace(
            self._ask,
            url=self._head.url,
            headers=() if moved else self._ask.headers,
            start=piece.at,
            end=None if piece.end is None else piece.end - 1,
            if_range=self._object[0],
            if_none_match=None,
            if_modified_since=None,
        )

    def _put_back(self, piece: _Piece, error: Reasoned) -> None:
        """Let somebody fetch what is missing of a piece; what came of it is good and stays."""
        piece.attempts += 1
        if piece.end is None:
            raise error
        if reason_named(error.reason).kind is not Kind.TRANSIENT or piece.attempts >= ATTEMPTS:
            raise _NoPiecesError(error.reason)
        if not piece.complete:
            self._todo.append(piece)
            self._room.set()

    def _back_to_one(self) -> None:
        """Forget the pieces ahead: the first stream goes on, or one from the byte that is due."""
        if self._over.done() or self._single:
            return
        self._single = True
        first_task = self._first_task if self._first_runs else None
        for task in self._tasks:
            if task is not first_task:
                task.cancel()
        piece = self._order[0] if self._order else _Piece(self, self._due, None)
        self._order = deque([piece])
        self._todo.clear()
        piece.end = None
        if piece.spill:  # the first stream's own bytes, which are needed after all
            piece.received += len(piece.spill)
            piece.waiting.append(piece.spill)
            piece.spill = b""
        if first_task is None:
            self._start(self._one_stream(piece))
        if not self._held:
            self._resumed()

    async def _one_stream(self, piece: _Piece) -> None:
        await self._transfer.fetch(self._ask_for(piece), piece)

    # --- delivering in order

    def deliver(self, piece: _Piece) -> bool:
        """Give the sink what is due, as far as it is here and the sink takes it; False: this piece's stream may pause."""
        order = self._order
        if not order or piece is not order[0]:
            return True  # ahead of what is due: bounded by its own length
        while order and not self._held:
            first = order[0]
            while first.waiting and not self._held:
                self._give(first.waiting.popleft())
            if first.waiting or not first.complete or (first is self._first and self._first_runs):
                break  # the first stream keeps its place until others have taken over
            order.popleft()
        self._room.set()
        if self._object is not None and self._split is not None and self._due >= self._object[1]:
            self._finish()
        return not self._held

    def _give(self, data: bytes) -> None:
        self._due += len(data)
        try:
            if data and not self._sink.write(data):
                self._held = self._was_held = True
        except BaseException as error:
            self._fail(error)  # the sink's own: no other stream can help
            raise

    def _finish(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _resumed(self) -> None:
        """Go on after the sink's pause: what waits is delivered, then the streams go on."""
        self._held = False
        if not self._order or self._over.done():
            return
        piece = self._order[0]
        with contextlib.suppress(BaseException):  # the window has failed with it
            self.deliver(piece)
        if not self._held:
            piece.resume()
            self._first.resume()
