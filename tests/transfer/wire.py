"""How the tests of this package fetch: one loop per call, loopback allowed, real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from longshore.domain.settings import Settings
from longshore.errors import Reasoned
from longshore.transfer import Answer, FetchRequest, Memory, NetworkPolicy, Transfer
from tests.support.settings import tuned

T = TypeVar("T")
LOOPBACK = NetworkPolicy.allowing("127.0.0.0/8", "::1")
USUAL = tuned(stall_s=60, max_bytes=64 << 20)


def within(
    work: Callable[[Transfer], Awaitable[T]], *, settings: Settings = USUAL, policy: NetworkPolicy = LOOPBACK
) -> T:
    """Run `work` with a transfer of its own."""

    async def main() -> T:
        async with Transfer(settings, policy) as transfer:
            return await work(transfer)

    return asyncio.run(main())


def fetch(
    ask: FetchRequest | str, *, settings: Settings = USUAL, policy: NetworkPolicy = LOOPBACK
) -> tuple[Answer, bytes]:
    """Fetch once into memory."""
    sink = Memory()
    wanted = FetchRequest(ask) if isinstance(ask, str) else ask
    answer = within(lambda transfer: transfer.fetch(wanted, sink), settings=settings, policy=policy)
    return answer, sink.body


def fails(ask: FetchRequest | str, *, settings: Settings = USUAL, policy: NetworkPolicy = LOOPBACK) -> Reasoned:
    """Fetch once and give the reason why not."""
    with pytest.raises(Reasoned) as caught:
        fetch(ask, settings=settings, policy=policy)
    return caught.value


def reason(ask: FetchRequest | str, *, settings: Settings = USUAL, policy: NetworkPolicy = LOOPBACK) -> str:
    """Fetch once and name the reason why not."""
    return fails(ask, settings=settings, policy=policy).reason
