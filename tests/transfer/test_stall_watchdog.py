"""Time limits (torture D 45): stalls, slowness, deadlines. Small limits against servers that never go on."""

from __future__ import annotations

import asyncio
import socket

import pytest

from longshore.errors import Reasoned
from longshore.transfer import Answer, Discard, FetchRequest, Memory, Transfer
from tests.support.origin import Gate, Origin, Thing, cut, drip, raw, silent, stamped
from tests.support.settings import changed, tuned
from tests.transfer.test_client import Slow
from tests.transfer.wire import reason, within

THING = Thing(stamped(1, 50_000))
IMPATIENT = tuned(stall_s=0.4)


def test_a_server_that_never_answers(origin: Origin) -> None:
    assert reason(origin.add("/a", silent()), settings=IMPATIENT) == "too_slow"


@pytest.mark.parametrize("after", [0, 1, 49_999])
def test_a_body_that_stalls(origin: Origin, after: int) -> None:
    assert reason(origin.add("/a", cut(THING, after, "hang")), settings=IMPATIENT) == "too_slow"


def test_headers_that_stall(origin: Origin) -> None:
    assert reason(origin.add("/a", raw(b"HTTP/1.1 200 OK\r\nContent-", "hang")), settings=IMPATIENT) == "too_slow"


def test_a_drip_is_not_a_stall_but_too_slow(origin: Origin) -> None:
    url = origin.add("/a", drip(THING, 10, 0.02))
    settings = tuned(stall_s=30, min_speed_bytes_s=40_000, speed_window_s=0.4)
    assert reason(url, settings=settings) == "too_slow"


def test_the_deadline_covers_everything(origin: Origin) -> None:
    url = origin.add("/a", drip(THING, 10, 0.02))
    assert reason(url, settings=changed(IMPATIENT, stall_s=30, deadline_s=0.4)) == "deadline"
    assert reason(FetchRequest(url, deadline_s=0.4), settings=changed(IMPATIENT, stall_s=30)) == "deadline"
    assert reason(FetchRequest(origin.add("/b", silent()), deadline_s=0.4)) == "deadline"


def test_a_peer_that_never_completes_the_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"https://127.0.0.1:{mute.getsockname()[1]}/"
        assert reason(url, settings=tuned(connect_s=0.4)) == "connect"


def test_a_pause_of_ours_is_never_too_slow(origin: Origin) -> None:
    url = origin.add("/a", THING)
    settings = tuned(stall_s=0.5, min_speed_bytes_s=1e9, speed_window_s=0.5)

    async def started(transfer: Transfer) -> tuple[asyncio.Task[Answer], Slow]:
        while True:  # on a busy machine the first byte may take longer than these small limits
            sink = Slow()
            task = asyncio.ensure_future(transfer.fetch(FetchRequest(url), sink))
            waiting = asyncio.ensure_future(sink.paused.wait())
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if sink.paused.is_set():
                return task, sink
            waiting.cancel()
            assert task.exception() is not None

    async def hold(transfer: Transfer) -> None:
        task, _sink = await started(transfer)
        await asyncio.sleep(1.5)  # longer than every limit: what is tested is that nothing happens
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    within(hold, settings=settings)


def test_a_stopped_transfer_does_not_disturb_the_others(origin: Origin) -> None:
    stuck, fine = origin.add("/a", silent()), origin.add("/b", THING)

    async def both(transfer: Transfer) -> None:
        first, *others = await asyncio.gather(
            transfer.fetch(FetchRequest(stuck, deadline_s=0.4), Discard()),
            *(transfer.fetch(FetchRequest(fine), Discard()) for _ in range(20)),
            return_exceptions=True,
        )
        assert isinstance(first, Reasoned) and first.reason == "deadline"
        assert all(isinstance(other, Answer) and other.received_bytes == len(THING.body) for other in others)

    within(both)


def test_an_event_that_nobody_told_of_does_not_end_a_transfer(origin: Origin) -> None:
    """Whatever epoll or libcurl forgets: a transfer that stands still is looked at again, long before it is too slow."""
    gate = Gate(THING, 10_000)
    url, sink = origin.add("/a", gate), Memory()

    async def forgetful(transfer: Transfer) -> bytes:
        task = asyncio.ensure_future(transfer.fetch(FetchRequest(url), sink))
        while sum(map(len, sink.pieces)) < 10_000:
            await asyncio.sleep(0.01)
        reactor = transfer._reactor
        for fd in reactor._watched:
            reactor._epoll.modify(fd, 0)  # the kernel keeps what comes now to itself
        gate.open()
        await task
        return sink.body

    assert within(forgetful, settings=tuned(stall_s=60)) == THING.body
