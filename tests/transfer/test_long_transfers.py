"""Long ones, for `make torture`: a flaky but honest server for many downloads (D 61), four gibibytes in little memory."""

from __future__ import annotations

import asyncio
import os
import random
import resource
from pathlib import Path

import pytest

from longshore.config import load_settings
from longshore.depot import Depot
from longshore.transfer import Discard, FetchRequest, Transfer
from tests.support.origin import (
    Behaviour,
    Origin,
    Thing,
    bad_range,
    check_stamps,
    chunked,
    cut,
    encoded,
    endless,
    on_range,
    other_version,
    overlong,
    raw,
    stamped,
    status,
    unsatisfiable,
)
from tests.support.settings import tuned
from tests.transfer.wire import LOOPBACK, within

pytestmark = pytest.mark.torture


def failure(dice: random.Random, thing: Thing) -> Behaviour:
    """Choose one way to fail that a later attempt can heal."""
    return dice.choice(
        [
            cut(thing, dice.randrange(len(thing.body))),
            cut(thing, dice.randrange(len(thing.body)), "reset"),
            status(503, Retry_After="0"),
            status(500),
            raw(b""),
            raw(b"HTTP/1.1 200 OK\r\nContent-"),
            raw(b"rubbish\r\n\r\n"),
            chunked(thing, 4000, end=b""),
            on_range(thing, bad_range(thing, dice.choice(["start", "total", "short", "no_header", "etag"]))),
            on_range(thing, unsatisfiable(thing, dice.choice([None, 5]))),
            on_range(thing, encoded(thing)),
            overlong(thing, b"more"),
            cut(other_version(thing, 2), dice.randrange(len(thing.body))),
        ]
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_flaky_server_is_outlasted(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    settings = {"network": {"allow": ["127.0.0.0/8"]}, "retry": {"base_s": 0.01, "cap_s": 0.05, "max_attempts": 20}}
    settings["hosts"] = {"breaker_failures": 1_000_000}
    with Origin() as origin:
        urls = []
        for n in range(300):
            thing = Thing(stamped(1, dice.choice([10, 20_000, 300_000, 700_000])))
            faults = [failure(dice, thing) for _ in range(dice.randrange(6))]
            urls.append(origin.add(f"/{n}", *faults, thing))
        with Depot(settings=load_settings(tmp_path / "depot", environ={}, **settings)) as depot:
            for got in depot.get(urls):
                assert got.path is not None, f"{got.url} {got.reason} {got.message}"
                body = got.path.read_bytes()
                assert len(body) < 20 or check_stamps(body) in (1, 2)


def test_four_gibibytes_in_little_memory() -> None:
    size = 4 << 30
    with Origin() as origin:
        url = origin.add("/a", endless(size))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        settings = tuned(max_bytes=1 << 40)
        got = within(lambda transfer: transfer.fetch(FetchRequest(url), Discard()), settings=settings)
        assert got.received_bytes == size
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_descriptors_come_back() -> None:
    with Origin() as origin:
        urls = [origin.add(f"/{n}", Thing(stamped(1, 1000))) for n in range(50)]
        bad = origin.add("/bad", cut(Thing(stamped(1, 1000)), 10))

        async def rounds() -> None:
            for _ in range(20):
                async with Transfer(tuned(), LOOPBACK) as transfer:
                    asks = [transfer.fetch(FetchRequest(url), Discard()) for url in [*urls, bad]]
                    results = await asyncio.gather(*asks, return_exceptions=True)
                    assert sum(isinstance(result, Exception) for result in results) == 1

        asyncio.run(rounds())
        mine = len(os.listdir("/proc/self/fd"))
        asyncio.run(rounds())
        assert len(os.listdir("/proc/self/fd")) <= mine + 60, "the origin's own side closes a little later"
