"""A connection that a sloppy or hostile server has left bytes in is not used for the next request."""

from __future__ import annotations

import asyncio

import pytest

from longshore.transfer import FetchRequest, Memory, Transfer
from tests.support.origin import Behaviour, Origin, Request, Thing, Wire, stamped
from tests.transfer.wire import LOOPBACK

EVIL = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL"


def extra(thing: Thing, more: bytes, after_s: float) -> Behaviour:
    """Answer honestly, then send more on the same connection."""

    def behave(request: Request, wire: Wire) -> None:
        thing(request, wire)
        if after_s:
            wire.wait(after_s)
        wire.send(more)

    return behave


@pytest.mark.parametrize("more", [EVIL, b"\n", b"<!-- served by x -->", b"\r\n"])
@pytest.mark.parametrize("after_s", [0.0, 0.02])
@pytest.mark.parametrize("size", [1_000, 100_000, 300_000, 2_000_000])
def test_what_lies_in_a_connection_is_not_the_next_answer(
    origin: Origin, more: bytes, after_s: float, size: int
) -> None:
    first = origin.add("/first", extra(Thing(stamped(1, size)), more, after_s))
    second = origin.add("/second", Thing(stamped(2, 500)))

    async def both() -> list[bytes]:
        bodies = []
        async with Transfer(policy=LOOPBACK) as transfer:
            for _ in range(3):
                for url in (first, second):
                    sink = Memory()
                    await transfer.fetch(FetchRequest(url), sink)
                    bodies.append(sink.body)
                    await asyncio.sleep(0.05)  # so that what is late has come: only then can it be seen
        return bodies

    assert asyncio.run(asyncio.wait_for(both(), 30)) == [stamped(1, size), stamped(2, 500)] * 3
    assert origin.count("/second") == origin.count("/first") == 3, "nothing was sent on a doubtful connection"


def test_clean_connections_are_used_again(origin: Origin) -> None:
    url = origin.add("/a", Thing(stamped(1, 1_000)))

    async def several() -> int:
        async with Transfer(policy=LOOPBACK) as transfer:
            return sum([(await transfer.fetch(FetchRequest(url), Memory())).new_connections for _ in range(5)])

    assert asyncio.run(several()) == 1
