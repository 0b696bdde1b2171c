"""Every order of events over several streams: the body comes whole, or the fetch fails; nothing ever just stops.

The streams are the test's own: it decides which of them moves, fails or ends next, in every order. Real sockets are in
`test_segments.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import product
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longshore.domain.model import Validators
from longshore.domain.transfer.ranges import ContentRange
from longshore.domain.transfer.response_head import Head
from longshore.errors import Reasoned
from longshore.transfer import Answer, FetchRequest, Sink, Transfer
from longshore.transfer.client import NoPieceError
from longshore.transfer.segmented import Slots, _Window
from tests.support.origin import stamped

TOTAL = 2 << 20
BODY = stamped(1, TOTAL)
URL = "http://a.example/x"
MOST_REQUESTS = 60


class Stream:
    """One request that the test answers bit by bit."""

    def __init__(self, ask: FetchRequest, sink: Sink) -> None:
        self.ask, self.sink = ask, sink
        self.at, self.end = ask.start, TOTAL if ask.end is None else ask.end + 1
        self.begun = self.paused = self.gone = False
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    @property
    def moves(self) -> bool:
        return not self.future.done() and not self.paused

    def head(self, **changes: object) -> Head:
        facts: dict[str, object] = {"url": URL, "validators": Validators('"v1"')} | changes
        if self.ask.ranged:
            span = ContentRange(self.ask.start, self.end - 1, TOTAL)
            return Head(206, headers={}, length=self.end - self.ask.start, content_range=span, **facts)  # type: ignore[arg-type]
        return Head(200, headers={"accept-ranges": "bytes"}, length=TOTAL, **facts)  # type: ignore[arg-type]

    def send(self, count: int, **changes: object) -> None:
        if not self.moves:
            return
        try:
            if not self.begun:
                self.begun = True
                self.sink.resume = self._resume
                self.sink.begin(self.head(**changes))
            data = BODY[self.at : min(self.end, self.at + count)]
            self.at += len(data)
            if data and not self.sink.write(data):
                self.paused = True
        except BaseException as error:
            if not self.future.done():
                self.future.set_exception(error)
            return
        if self.at == self.end and not self.paused:
            self.finish()

    def _resume(self) -> None:
        self.paused = False
        if self.at == self.end:
            self.finish()

    def finish(self) -> None:
        if not self.future.done():
            self.future.set_result(Answer(self.head(), self.at - self.ask.start, 0.1, 1, ""))

    def fail(self, reason: str) -> None:
        if not self.future.done():
            self.future.set_exception(Reasoned(reason, "by the test"))


class Streams:
    """Stands where the transfer stands."""

    def __init__(self) -> None:
        self.all: list[Stream] = []
        self.short = False

    async def fetch_piece(self, ask: FetchRequest, sink: Sink) -> Answer:
        if self.short:
            raise NoPieceError("descriptors are short")
        return await self.fetch(ask, sink)

    async def fetch(self, ask: FetchRequest, sink: Sink) -> Answer:
        stream = Stream(ask, sink)
        self.all.append(stream)
        return await stream.future

    @property
    def open(self) -> list[Stream]:
        return [stream for stream in self.all if not stream.future.done()]


class Taker:
    """A sink that can be told to pause."""

    resume: Callable[[], None]

    def __init__(self) -> None:
        self.body = bytearray()
        self.pausing = self.held = False

    def begin(self, head: Head) -> None:
        assert not self.body

    def write(self, data: bytes) -> bool:
        assert not self.held, "bytes came while the sink was paused"
        self.body += data
        self.held = self.pausing
        return not self.held

    def go_on(self) -> None:
        self.pausing = False
        if self.held:
            self.held = False
            self.resume()


class Counted(Slots):
    def __init__(self) -> None:
        self.taken = 0

    def take(self) -> bool:
        self.taken += 1
        return True

    def give(self) -> None:
        self.taken -= 1
        assert self.taken >= 0


Play = Callable[[Streams, Taker, Callable[[], Awaitable[None]]], Awaitable[None]]


def played(play: Play, connections: int = 4) -> tuple[str, bytes, Streams]:
    """Run one body: split, then as the test plays it, then honestly to its end. Give the outcome."""

    async def main() -> tuple[str, bytes, Streams]:
        streams, taker, slots = Streams(), Taker(), Counted()
        window = _Window(cast("Transfer", streams), FetchRequest(URL), taker, connections, slots)
        task = asyncio.ensure_future(window.run())

        async def settle() -> None:
            for _ in range(8):
                await asyncio.sleep(0)
            assert len(streams.all) <= MOST_REQUESTS
            assert task.done() or taker.held or any(stream.moves for stream in streams.open), "nothing moves"

        await settle()
        streams.all[0].send(100_000)
        window._look(asyncio.get_running_loop().time() - 1, 0)
        await settle()
        await play(streams, taker, settle)
        for _ in range(400):
            await settle()
            if task.done():
                break
            taker.go_on()
            for stream in streams.open:
                stream.send(200_000)
        assert task.done(), "the body never ended"
        assert slots.taken == 0
        try:
            answer = task.result()
        except Reasoned as error:
            return error.reason, bytes(taker.body), streams
        assert answer.received_bytes == TOTAL
        return "ok", bytes(taker.body), streams

    return asyncio.run(main())


def check(outcome: tuple[str, bytes, Streams]) -> str:
    word, body, _ = outcome
    assert BODY.startswith(body), "what was delivered is a prefix of one version"
    assert word != "ok" or body == BODY
    return word


def test_without_faults() -> None:
    async def play(streams: Streams, taker: Taker, settle: Callable[[], Awaitable[None]]) -> None:
        assert len(streams.open) == 4

    assert check(played(play)) == "ok"


ENDS = ("truncated", "too_slow", "http_403", "finish", "some bytes", "other url")


@pytest.mark.parametrize("together", [True, False], ids=["in one turn", "one after the other"])
def test_every_end_of_every_stream(together: bool) -> None:
    """All combinations of how three streams end, all in one turn of the loop or each in its own, once and again."""
    for ends in product(ENDS, repeat=3):

        async def play(
            streams: Streams, taker: Taker, settle: Callable[[], Awaitable[None]], ends: tuple[str, ...] = ends
        ) -> None:
            for _ in range(2):
                for stream, end in zip(streams.open[:3], ends, strict=False):
                    _do(stream, end)
                    if not together:
                        await settle()
                await settle()

        assert check(played(play, connections=3)) in ("ok", "truncated", "too_slow", "object_changed")


def _do(stream: Stream, what: str) -> None:
    if what == "finish":
        stream.send(TOTAL)
    elif what == "some bytes":
        stream.send(70_000)
    elif what == "other url":
        stream.send(1000, url="http://b.example/x")
    elif what == "other version":
        stream.send(1000, validators=Validators('"v2"'))
    else:
        stream.fail(what)


_EVENT = st.tuples(
    st.integers(0, 7),
    st.sampled_from([*ENDS, "other version", "pause", "go on", "short", "enough", "some bytes", "finish"]),
)


@pytest.mark.parametrize("end", ENDS)
def test_descriptors_become_short_after_the_split(end: str) -> None:
    """No further piece is asked for: those that run end, and then one stream fetches the rest."""

    async def play(streams: Streams, taker: Taker, settle: Callable[[], Awaitable[None]]) -> None:
        streams.short = True
        asked = len(streams.all)
        streams.all[0].send(TOTAL)
        for stream in streams.open[1:]:
            _do(stream, end)
        await settle()
        assert len(streams.all) <= asked + 1

    assert check(played(play)) == "ok"


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(_EVENT, st.booleans()), max_size=30), st.integers(2, 6))
def test_any_order_of_events(events: list[tuple[tuple[int, str], bool]], connections: int) -> None:
    async def play(streams: Streams, taker: Taker, settle: Callable[[], Awaitable[None]]) -> None:
        for (which, what), turn in events:
            if what == "pause":
                taker.pausing = True
            elif what == "go on":
                taker.go_on()
            elif what in ("short", "enough"):
                streams.short = what == "short"
            elif streams.open:
                _do(streams.open[which % len(streams.open)], what)
            if turn:
                await settle()

    check(played(play, connections))


def test_a_refusal_of_the_rest_is_not_a_refusal_of_the_object() -> None:
    async def play(streams: Streams, taker: Taker, settle: Callable[[], Awaitable[None]]) -> None:
        for stream in streams.open:
            stream.fail("truncated" if stream is streams.all[0] else "http_403")
        await settle()
        streams.open[0].fail("http_403")
        await settle()

    assert check(played(play)) == "truncated"


def test_the_first_stream_stays_until_a_whole_piece_came() -> None:
    """A valid head proves nothing; a whole piece does, until another one fails."""

    async def play(streams: Streams, taker: Taker, settle: Callable[[], Awaitable[None]]) -> None:
        first, one, two, three = streams.open
        for piece in (one, two, three):
            piece.send(1000)
        first.send(TOTAL)
        await settle()
        assert not first.future.done() and first.paused, "it waits at the end of its piece"
        one.fail("truncated")
        await settle()
        assert not first.future.done()
        two.send(TOTAL)
        await settle()
        assert first.future.cancelled(), "a whole piece came: others go on"

    assert check(played(play)) == "ok"


def test_a_piece_that_fails_takes_back_what_another_proved() -> None:
    async def play(streams: Streams, taker: Taker, settle: Callable[[], Awaitable[None]]) -> None:
        first, one, two, three = streams.open
        one.send(TOTAL)
        await settle()
        two.fail("truncated")
        await settle()
        first.send(TOTAL)
        await settle()
        assert not first.future.done() and first.paused
        three.send(TOTAL)
        await settle()
        assert first.future.cancelled()

    assert check(played(play)) == "ok"


@pytest.mark.parametrize("reason", ["truncated", "too_slow", "connect"])
def test_where_every_piece_fails_the_first_stream_fetches_all(reason: str) -> None:
    async def play(streams: Streams, taker: Taker, settle: Callable[[], Awaitable[None]]) -> None:
        first = streams.all[0]
        for _ in range(20):
            for stream in streams.open:
                stream.send(1000)
                if stream is not first:
                    stream.fail(reason)
            await settle()
        assert streams.open == [first]

    word, body, streams = played(play)
    assert (word, body) == ("ok", BODY)
    assert all(stream.ask.end is not None for stream in streams.all[1:]), "no stream for the rest was needed"
