"""`transfer.max_rate` holds within 15 %: one body, many at once, many small ones, pieces of one, FTP, several processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from longshore.domain.settings import Settings
from longshore.transfer import FetchRequest, Memory, Transfer
from longshore.transfer.segmented import fetch_in_pieces
from tests.cli.conftest import LOOPBACK
from tests.support.liar_ftp import LiarFtp
from tests.support.origin import Origin, Request, Thing, Wire, stamped
from tests.support.program import execute
from tests.support.settings import tuned
from tests.transfer.wire import within

pytestmark = pytest.mark.slow  # a rate can only be measured over time
RATE = 1 << 20
SECONDS = 3
SIZE = RATE * SECONDS
LIMITED = tuned(max_rate="1M", stall_s=60, max_bytes=64 << 20)


def check_rate(nbytes: int, work: Callable[[Transfer], Awaitable[Any]], settings: Settings = LIMITED) -> None:
    took = 0.0

    async def timed(transfer: Transfer) -> None:
        nonlocal took
        began = time.monotonic()
        await work(transfer)
        took = time.monotonic() - began

    within(timed, settings=settings)
    assert nbytes / took == pytest.approx(RATE, rel=0.15), f"{nbytes / took:.0f} B/s"


async def fetch_all(transfer: Transfer, urls: list[str]) -> list[bytes]:
    sinks = [Memory() for _ in urls]
    await asyncio.gather(*(transfer.fetch(FetchRequest(url), sink) for url, sink in zip(urls, sinks, strict=True)))
    return [sink.body for sink in sinks]


@pytest.mark.parametrize("count", [1, 8])
def test_bodies_share_the_rate(origin: Origin, count: int) -> None:
    urls = [origin.add(f"/{n}", Thing(stamped(n, SIZE // count))) for n in range(count)]
    check_rate(SIZE, lambda transfer: fetch_all(transfer, urls))


def test_many_small_bodies_keep_the_rate(origin: Origin) -> None:
    urls = [origin.add(f"/{n}", Thing(stamped(n, 8192))) for n in range(SIZE // 8192)]

    async def by_sixteen(transfer: Transfer) -> None:
        for at in range(0, len(urls), 16):
            await fetch_all(transfer, urls[at : at + 16])

    check_rate(SIZE, by_sixteen)


def test_pieces_of_one_body_share_the_rate(origin: Origin) -> None:
    thing = Thing(stamped(1, SIZE))
    url, sink = origin.add("/a", thing), Memory()
    check_rate(SIZE, lambda transfer: fetch_in_pieces(transfer, FetchRequest(url), sink, connections=4))
    assert sink.body == thing.body


def test_ftp_keeps_the_rate() -> None:
    data, sink = stamped(1, SIZE), Memory()
    with LiarFtp(data, size=f"213 {SIZE}") as server:
        check_rate(SIZE, lambda transfer: transfer.fetch(FetchRequest(server.url()), sink))
    assert sink.body == data


def test_a_share_is_a_part_of_the_rate(origin: Origin) -> None:
    urls = [origin.add(f"/{n}", Thing(stamped(n, SIZE // 2))) for n in range(2)]
    settings = tuned(max_rate="4M 00:00-24:00, 0 otherwise", max_rate_shares=4, max_bytes=64 << 20)
    check_rate(SIZE, lambda transfer: fetch_all(transfer, urls), settings)


def test_a_limited_transfer_is_not_given_up_as_slow(origin: Origin) -> None:
    url = origin.add("/a", Thing(stamped(1, SIZE)))
    settings = tuned(max_rate="1M", stall_s=1, min_speed_bytes_s=8 << 20, speed_window_s=0.5, max_bytes=64 << 20)
    check_rate(SIZE, lambda transfer: fetch_all(transfer, [url]), settings)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_rate_of_a_run_is_that_of_all_its_processes(origin: Origin, tmp_path: Path, workers: int) -> None:
    asked: list[float] = []
    body = stamped(1, 16_384)

    def noting(request: Request, wire: Wire) -> None:
        asked.append(time.monotonic())
        Thing(body)(request, wire)

    urls = [origin.add(f"/{n}", noting) for n in range(400)]
    env = LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot")}
    execute("add", "-", stdin="\n".join(urls).encode(), env=env).ok()
    execute("run", "--limit-rate", "1M", "-j", "4", "--workers", workers, env=env).ok()
    first, last = len(urls) // 10, len(urls) * 6 // 10  # not the start, and not the end, when one may be done
    took = sorted(asked)[last] - sorted(asked)[first]
    sent = len(body) * (last - first)
    assert sent / took == pytest.approx(RATE, rel=0.15), f"{sent / took:.0f} B/s"
