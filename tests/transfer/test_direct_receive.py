"""The rest of a large plain body comes past libcurl: the same bytes, the same reasons, the same pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from longshore.domain.settings import Settings
from longshore.errors import Reasoned
from longshore.transfer import FetchRequest, Memory, Transfer
from longshore.transfer.direct_receive import DirectReceive
from longshore.transfer.easy_handle import EasyHandle
from tests.support.origin import (
    Behaviour,
    Gate,
    Origin,
    Thing,
    answer,
    chunked,
    cut,
    drip,
    overlong,
    redirect,
    stamped,
)
from tests.support.settings import tuned
from tests.transfer.wire import LOOPBACK, USUAL, within

BODY = stamped(7, 3_000_001)


class Open(Memory):
    """A sink with memory to receive into. It pauses at its first bytes, like one that has a file to make."""

    def __init__(self, *, pauses: int = 0, fails: str = "") -> None:
        super().__init__()
        self._memory = bytearray(100_000)
        self._pauses, self._fails = pauses, fails
        self.straight = 0
        self.paused = self.asked = False

    def write(self, data: bytes) -> bool:
        assert not self.straight, "libcurl handed bytes over after it was left"
        super().write(data)
        if len(self.pieces) == 1:
            asyncio.get_running_loop().call_later(0.02, self._go_on)
        return len(self.pieces) > 1

    def room(self) -> memoryview | None:
        if self._fails == "room" and self.asked:
            raise OSError(28, "no space")
        self.asked = True
        return memoryview(self._memory)

    def filled(self, count: int) -> bool:
        assert not self.paused, "bytes came while the sink was paused"
        if self._fails == "filled":
            raise OSError(28, "no space")
        self.straight += count
        self.pieces.append(bytes(self._memory[:count]))
        self.paused = self._pauses > 0
        if self.paused:
            self._pauses -= 1
            asyncio.get_running_loop().call_later(0.01, self._go_on)
        return not self.paused

    def _go_on(self) -> None:
        self.paused = False
        self.resume()


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave libcurl after some kilobytes: the bodies of tests are small."""
    monkeypatch.setattr("longshore.transfer.easy_handle.FROM", 20_000)
    monkeypatch.setattr("longshore.transfer.easy_handle.WORTH", 1000)


@pytest.fixture
def left_open() -> Iterator[set[DirectReceive]]:
    """Count connections that were taken and not given back."""
    taken: set[DirectReceive] = set()
    begin, end = DirectReceive.go_on, DirectReceive.close

    def go_on(self: DirectReceive) -> None:
        taken.add(self)
        begin(self)

    def close(self: DirectReceive) -> None:
        taken.discard(self)
        end(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectReceive, "go_on", go_on)
        patch.setattr(DirectReceive, "close", close)
        yield taken


def bring(url: str, sink: Open, settings: Settings = USUAL, **more: Any) -> int:
    return within(lambda transfer: transfer.fetch(FetchRequest(url, **more), sink), settings=settings).received_bytes


def reason(url: str, sink: Open, settings: Settings = USUAL, **more: Any) -> str:
    with pytest.raises(Reasoned) as caught:
        bring(url, sink, settings, **more)
    return caught.value.reason


@pytest.mark.parametrize("pauses", [0, 5])
def test_the_body_arrives_whole(origin: Origin, left_open: set[DirectReceive], pauses: int) -> None:
    sink = Open(pauses=pauses)
    assert bring(origin.add("/a", Thing(BODY)), sink) == len(BODY)
    assert sink.body == BODY and sink.straight and not left_open


def test_a_range(origin: Origin) -> None:
    sink = Open()
    assert bring(origin.add("/a", Thing(BODY)), sink, start=1_000_000) == len(BODY) - 1_000_000
    assert sink.body == BODY[1_000_000:] and sink.straight


def test_other_transfers_use_other_connections(origin: Origin) -> None:
    """The connection is closed afterwards, and the handle is not used again."""
    url = origin.add("/a", Thing(BODY))

    async def twice(transfer: Transfer) -> None:
        for _ in range(2):
            sink = Open()
            got = await transfer.fetch(FetchRequest(url), sink)
            assert sink.body == BODY and sink.straight and got.new_connections == 1 and got.address == "127.0.0.1"
        small = Memory()
        await transfer.fetch(FetchRequest(origin.add("/b", Thing())), small)
        assert small.body == Thing().body

    within(twice)


@pytest.mark.parametrize("how", ["hangup", "reset"])
def test_a_body_that_ends_early(origin: Origin, left_open: set[DirectReceive], how: str) -> None:
    sink = Open()
    assert reason(origin.add("/a", cut(Thing(BODY), 2_000_000, how)), sink) == "truncated"
    assert BODY.startswith(sink.body) and not left_open


def test_a_body_that_stalls(origin: Origin, left_open: set[DirectReceive]) -> None:
    sink = Open()
    url = origin.add("/a", cut(Thing(BODY), 2_000_000, "hang"))
    assert reason(url, sink, tuned(stall_s=0.3)) == "too_slow"
    assert len(sink.body) == 2_000_000 and sink.straight and not left_open


def test_a_pause_of_ours_is_no_stall(origin: Origin) -> None:
    sink = Open(pauses=20)
    assert bring(origin.add("/a", Thing(BODY)), sink, tuned(stall_s=0.16)) == len(BODY)
    assert sink.body == BODY


def test_a_drip_is_too_slow(origin: Origin) -> None:
    settings = tuned(stall_s=5, min_speed_bytes_s=1e9, speed_window_s=0.3)
    sink = Open()
    assert reason(origin.add("/a", drip(Thing(BODY), 30_000, 0.05)), sink, settings) == "too_slow"


def test_what_comes_after_the_body_is_not_part_of_it(origin: Origin) -> None:
    sink = Open()
    assert bring(origin.add("/a", overlong(Thing(BODY), b"x" * 50_000)), sink) == len(BODY)
    assert sink.body == BODY and sink.straight


@pytest.mark.parametrize("behaviour", [chunked(Thing(BODY), 10_000), answer(200, {}, BODY, then="hangup")])
def test_a_body_without_a_declared_length_is_left_to_libcurl(origin: Origin, behaviour: Behaviour) -> None:
    sink = Open()
    assert bring(origin.add("/a", behaviour), sink) == len(BODY)
    assert sink.body == BODY and not sink.straight


def test_a_connection_that_carried_other_answers_is_left_to_libcurl(origin: Origin) -> None:
    """What the kernel counts is more than this answer: nobody can tell what libcurl holds."""
    origin.add("/a", Thing(BODY))
    sink = Open()
    assert bring(origin.add("/b", redirect("/a")), sink) == len(BODY)
    assert sink.body == BODY and not sink.straight


@pytest.mark.parametrize("said", [None, 1])
def test_a_kernel_that_says_something_else(origin: Origin, monkeypatch: pytest.MonkeyPatch, said: int | None) -> None:
    monkeypatch.setattr(DirectReceive, "taken", lambda _self: said)
    sink = Open()
    assert bring(origin.add("/a", Thing(BODY)), sink) == len(BODY)
    assert sink.body == BODY and not sink.straight


def test_a_sink_without_memory_gets_objects(origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Open, "room", lambda _self: None)
    sink = Open()
    assert bring(origin.add("/a", Thing(BODY)), sink) == len(BODY)
    assert sink.body == BODY and not sink.straight


def test_no_descriptor_to_be_had(origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_fd: int) -> int:
        raise OSError(24, "too many open files")

    monkeypatch.setattr("longshore.transfer.direct_receive.os.dup", refuse)
    sink = Open()
    assert bring(origin.add("/a", Thing(BODY)), sink) == len(BODY)
    assert sink.body == BODY and not sink.straight


@pytest.mark.parametrize("where", ["room", "filled"])
def test_what_a_sink_raises_reaches_the_caller(origin: Origin, left_open: set[DirectReceive], where: str) -> None:
    with pytest.raises(OSError, match="no space"):
        bring(origin.add("/a", Thing(BODY)), Open(fails=where))
    assert not left_open


def test_bytes_that_somebody_else_read_are_missed(origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends more than it declared would fill the hole: the count tells."""
    real, stolen = DirectReceive.receive, [5000]

    def steal(self: DirectReceive, room: memoryview) -> int | None:
        if stolen:
            try:
                self._socket.recv(stolen[0])
            except BlockingIOError:
                return None
            stolen.clear()
        return real(self, room)

    monkeypatch.setattr(DirectReceive, "receive", steal)
    assert reason(origin.add("/a", overlong(Thing(BODY), b"x" * 50_000)), Open()) == "length_mismatch"


def test_bytes_that_libcurl_hands_over_afterwards_are_refused(origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    real = EasyHandle._receive
    said: list[int | None] = []

    def late(self: EasyHandle) -> None:
        said.append(self._write(b"late"))
        real(self)

    monkeypatch.setattr(EasyHandle, "_receive", late)
    assert reason(origin.add("/a", Thing(BODY)), Open()) == "length_mismatch"
    assert said[0] == 0


@pytest.mark.parametrize("stop", ["cancel", "close"])
def test_stopping_in_the_middle(origin: Origin, left_open: set[DirectReceive], stop: str) -> None:
    gate = Gate(Thing(BODY), 2_000_000)
    url = origin.add("/a", gate)

    async def main() -> None:
        transfer, sink = Transfer(policy=LOOPBACK), Open()
        task = asyncio.ensure_future(transfer.fetch(FetchRequest(url), sink))
        while len(sink.body) < 2_000_000:
            await asyncio.sleep(0.005)
        assert left_open
        if stop == "cancel":
            task.cancel()
        else:
            await transfer.close()
        with pytest.raises(asyncio.CancelledError if stop == "cancel" else Reasoned):
            await task
        assert not left_open
        await transfer.close()

    asyncio.run(main())
    gate.open()
