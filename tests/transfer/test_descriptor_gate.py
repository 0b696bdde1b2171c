"""Descriptors run out: the transfer says so, asks for fewer at once, and goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import ExitStack

import pytest

from longshore.transfer.descriptor_gate import DescriptorGate
from tests.support.origin import Origin, Thing
from tests.support.program import environment
from tests.support.wire import stamped

SCRIPT = """
import asyncio, os, resource
from longshore.errors import Reasoned
from longshore.transfer import FetchRequest, Memory, NetworkPolicy, Transfer
from tests.support.settings import tuned
from tests.support.wire import stamped

async def main(origins):
    async with Transfer(tuned(concurrency=32), NetworkPolicy.allowing("127.0.0.0/8")) as transfer:
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 10, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        reasons = []

        async def one(origin):
            for _ in range(40):
                sink = Memory()
                try:
                    await transfer.fetch(FetchRequest(origin), sink)
                    return sink.body
                except Reasoned as error:
                    reasons.append(error.reason)
                    await asyncio.sleep(0.05)

        bodies = [await one(url) for url in origins] if ONE else await asyncio.gather(*map(one, origins))
        print(sum(body == stamped(1, 5000) for body in bodies), sorted(set(reasons)))

asyncio.run(main(URLS))
"""


@pytest.mark.parametrize("one", [False, True], ids=["at once", "one after the other"])
def test_requests_go_on_with_the_descriptors_there_are(one: bool) -> None:
    """One after the other, it is idle connections that hold every descriptor."""
    with ExitStack() as stack:
        origins = [stack.enter_context(Origin(f"127.0.0.{number + 2}")) for number in range(40)]
        urls = [origin.add("/a", Thing(stamped(1, 5000))) for origin in origins]
        script = SCRIPT.replace("URLS", repr(urls)).replace("ONE", repr(one))
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=60
        )
        assert done.stdout == "40 ['too_many_files']\n", done.stderr
        assert all(origin.count("/a") == 1 for origin in origins)


def test_the_gate_narrows_and_opens_again() -> None:
    async def scene() -> None:
        gate = DescriptorGate(most=8)
        for _ in range(8):
            await gate.enter()
        assert gate.limit is None
        gate.leave(starved=True)
        assert gate.limit == 4
        late = asyncio.ensure_future(gate.enter())
        for _ in range(3):
            gate.leave()
            await asyncio.sleep(0)
        assert not late.done(), "four are inside: that is all there is room for"
        gate.leave()
        await late
        for _ in range(60):
            gate.leave(well=True)
            await gate.enter()
        assert gate.limit is None

    asyncio.run(scene())


@pytest.mark.parametrize("granted", [True, False])
def test_a_canceled_request_gives_its_place_on(granted: bool) -> None:
    async def scene() -> None:
        gate = DescriptorGate(most=8)
        await gate.enter()
        gate.leave(starved=True)
        await gate.enter()
        first, second = asyncio.ensure_future(gate.enter()), asyncio.ensure_future(gate.enter())
        await asyncio.sleep(0)
        if granted:
            gate.leave()  # the place is the first one's, which does not know yet
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        if not granted:
            gate.leave()
        await asyncio.wait_for(second, 5)

    asyncio.run(scene())
