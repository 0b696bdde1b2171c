"""The sink of one transfer: what it keeps in memory."""

from __future__ import annotations

import asyncio
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

from longshore import compat
from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from longshore.domain.transfer.response_head import Head
from longshore.domain.transfer.resume import ComparePrefix
from longshore.worker.kinds.download.body_sink import BodySink

PIECE = bytes(65_536)
PIECES = 128


def test_a_prefix_is_compared_without_keeping_it(depot: Depot) -> None:
    """A server that ignores ranges sends again what is held: it is hashed on the way and never collected."""
    url = "http://127.0.0.1:1/a"
    depot.ledger.plan(depot.scope, [download_request(url)])
    lease = compat.lease_next_job(depot.ledger, "worker")
    assert lease is not None
    held = len(PIECE) * PIECES
    part = depot.store.part(depot.scope, lease.job_id, lease.epoch)
    part.begin(url=url, total=held + 1)
    for _ in range(PIECES):
        part.write(PIECE)

    async def receive(threads: ThreadPoolExecutor) -> tuple[int, str]:
        sink = BodySink(
            depot.store,
            lease,
            url,
            threads,
            judge=lambda _: ComparePrefix(0, held, "no_accept_ranges"),
            small_bytes=1 << 16,
            adopted=part,
            on_large=lambda _: None,
        )
        sink.resume = lambda: None
        sink.begin(Head(200, url, {}, length=held + 1))
        tracemalloc.start()
        for _ in range(PIECES):
            sink.write(PIECE)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        sink.write(b"!")
        body, _sha256, size = await sink.finish()
        assert (body, size) == (part, held + 1)
        return peak, part.read_back(held, 1).decode()

    with ThreadPoolExecutor(2) as threads:
        peak, end = asyncio.run(receive(threads))
    part.discard()
    assert end == "!"
    assert peak < held // 4
