"""Places for transfers: never more than allowed, in turn, and nobody is lost who stops waiting."""

from __future__ import annotations

import asyncio
import random

import pytest

from longshore.domain.keys import op_key
from longshore.engine.berths import Berths
from longshore.engine.publisher import finalize_key
from longshore.errors import Reasoned


async def _use(berths: Berths, host: str, limit: int, order: list[str], turns: int) -> None:
    async with berths.at(host, limit):
        order.append(host)
        for _ in range(turns):
            await asyncio.sleep(0)


def test_neither_the_total_nor_a_hosts_limit_is_exceeded() -> None:
    async def scene() -> Berths:
        berths, order = Berths(5), list[str]()
        draw = random.Random(7)
        users = [_use(berths, f"h{i % 3}", 2, order, draw.randrange(4)) for i in range(60)]
        await asyncio.gather(*users)
        assert len(order) == 60
        assert berths.free == 5
        return berths

    berths = asyncio.run(scene())
    assert max(berths.most_at.values()) <= 2
    assert berths.most <= 5


def test_a_busy_host_does_not_hold_up_another() -> None:
    async def scene() -> list[str]:
        berths, order = Berths(2), list[str]()
        async with berths.at("slow", 1):
            waiting = [asyncio.create_task(_use(berths, "slow", 1, order, 0)) for _ in range(10)]
            await asyncio.sleep(0)
            await _use(berths, "quick", 1, order, 0)
            assert order == ["quick"]
        await asyncio.gather(*waiting)
        return order

    assert asyncio.run(scene()) == ["quick", *["slow"] * 10]


def test_who_stops_waiting_keeps_no_place() -> None:
    async def scene() -> None:
        berths, order = Berths(1), list[str]()
        async with berths.at("h", 1):
            waiting = [asyncio.create_task(_use(berths, "h", 1, order, 0)) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            waiting[1].cancel()
        waiting[2].cancel()  # its place was granted in this very turn: it must go back
        await asyncio.gather(*waiting, return_exceptions=True)
        assert berths.free == 1
        await _use(berths, "h", 1, order, 0)
        assert order == ["h"]

    asyncio.run(scene())


def test_closed_berths_let_nobody_in_until_they_open() -> None:
    async def scene() -> None:
        berths, order = Berths(1), list[str]()
        berths.close()
        waiting = asyncio.create_task(_use(berths, "h", 1, order, 0))
        await asyncio.sleep(0)
        assert order == []
        berths.open()
        await waiting
        assert order == ["h"]

    asyncio.run(scene())


def test_a_drain_turns_waiting_transfers_away() -> None:
    async def scene() -> None:
        berths, order = Berths(1), list[str]()
        async with berths.at("h", 1):
            waiting = asyncio.create_task(_use(berths, "h", 1, order, 0))
            await asyncio.sleep(0)
            berths.turn_away()
            with pytest.raises(Reasoned) as refused:
                await waiting
            assert refused.value.reason == "interrupted"
        with pytest.raises(Reasoned):
            await _use(berths, "h", 1, order, 0)

    asyncio.run(scene())


def test_a_host_that_wants_rest_sees_none_of_those_who_wait() -> None:
    async def scene() -> list[str]:
        berths, order = Berths(4), list[str]()
        waiting = []
        with pytest.raises(Reasoned):
            async with berths.at("h", 1):
                waiting = [asyncio.create_task(_use(berths, "h", 1, order, 0)) for _ in range(3)]
                waiting.append(asyncio.create_task(_use(berths, "other", 1, order, 0)))
                await asyncio.sleep(0)
                raise Reasoned("http_429", "slow down", retry_after_s=60)
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [getattr(end, "reason", None) for end in ends] == ["host_busy"] * 3 + [None]
        return order

    assert asyncio.run(scene()) == ["other"]


def test_a_host_that_fails_again_and_again_is_left_alone() -> None:
    async def fail(berths: Berths, tried: list[str]) -> None:
        async with berths.at("h", 1):
            tried.append("h")
            await asyncio.sleep(0)
            raise Reasoned("connect", "refused")

    async def scene() -> int:
        berths, tried = Berths(4, breaker_failures=3), list[str]()
        await asyncio.gather(*(fail(berths, tried) for _ in range(20)), return_exceptions=True)
        return len(tried)

    assert asyncio.run(scene()) == 3


def test_the_short_way_to_a_finalize_key_is_the_key() -> None:
    assert finalize_key("0190-job", "ab" * 32) == op_key("FINALIZE", "0190-job", sha256="ab" * 32)
