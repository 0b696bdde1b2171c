"""Places for transfers: never more than allowed, in turn, and nobody is lost who stops waiting."""

from __future__ import annotations

import asyncio
import random

import pytest

from longshore.domain.identity.keys import op_key
from longshore.errors import Reasoned
from longshore.worker.publish_protocol import finalize_key
from longshore.worker.transfer_slots import TransferSlots


async def _use(transfer_slots: TransferSlots, host: str, limit: int, order: list[str], turns: int) -> None:
    async with transfer_slots.at(host, limit):
        order.append(host)
        for _ in range(turns):
            await asyncio.sleep(0)


def test_neither_the_total_nor_a_hosts_limit_is_exceeded() -> None:
    async def scene() -> TransferSlots:
        transfer_slots, order = TransferSlots(5), list[str]()
        draw = random.Random(7)
        users = [_use(transfer_slots, f"h{i % 3}", 2, order, draw.randrange(4)) for i in range(60)]
        await asyncio.gather(*users)
        assert len(order) == 60
        assert transfer_slots.free == 5
        return transfer_slots

    transfer_slots = asyncio.run(scene())
    assert max(transfer_slots.most_at.values()) <= 2
    assert transfer_slots.most <= 5


def test_a_busy_host_does_not_hold_up_another() -> None:
    async def scene() -> list[str]:
        transfer_slots, order = TransferSlots(2), list[str]()
        async with transfer_slots.at("slow", 1):
            waiting = [asyncio.create_task(_use(transfer_slots, "slow", 1, order, 0)) for _ in range(10)]
            await asyncio.sleep(0)
            await _use(transfer_slots, "quick", 1, order, 0)
            assert order == ["quick"]
        await asyncio.gather(*waiting)
        return order

    assert asyncio.run(scene()) == ["quick", *["slow"] * 10]


def test_who_stops_waiting_keeps_no_place() -> None:
    async def scene() -> None:
        transfer_slots, order = TransferSlots(1), list[str]()
        async with transfer_slots.at("h", 1):
            waiting = [asyncio.create_task(_use(transfer_slots, "h", 1, order, 0)) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            waiting[1].cancel()
        waiting[2].cancel()  # its place was granted in this very turn: it must go back
        await asyncio.gather(*waiting, return_exceptions=True)
        assert transfer_slots.free == 1
        await _use(transfer_slots, "h", 1, order, 0)
        assert order == ["h"]

    asyncio.run(scene())


def test_closed_berths_let_nobody_in_until_they_open() -> None:
    async def scene() -> None:
        transfer_slots, order = TransferSlots(1), list[str]()
        transfer_slots.close()
        waiting = asyncio.create_task(_use(transfer_slots, "h", 1, order, 0))
        await asyncio.sleep(0)
        assert order == []
        transfer_slots.open()
        await waiting
        assert order == ["h"]

    asyncio.run(scene())


def test_a_drain_turns_waiting_transfers_away() -> None:
    async def scene() -> None:
        transfer_slots, order = TransferSlots(1), list[str]()
        async with transfer_slots.at("h", 1):
            waiting = asyncio.create_task(_use(transfer_slots, "h", 1, order, 0))
            await asyncio.sleep(0)
            transfer_slots.turn_away()
            with pytest.raises(Reasoned) as refused:
                await waiting
            assert refused.value.reason == "interrupted"
        with pytest.raises(Reasoned):
            await _use(transfer_slots, "h", 1, order, 0)

    asyncio.run(scene())


def test_a_host_that_wants_rest_sees_none_of_those_who_wait() -> None:
    async def scene() -> list[str]:
        transfer_slots, order = TransferSlots(4), list[str]()
        waiting = []
        with pytest.raises(Reasoned):
            async with transfer_slots.at("h", 1):
                waiting = [asyncio.create_task(_use(transfer_slots, "h", 1, order, 0)) for _ in range(3)]
                waiting.append(asyncio.create_task(_use(transfer_slots, "other", 1, order, 0)))
                await asyncio.sleep(0)
                raise Reasoned("http_429", "slow down", retry_after_s=60)
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [getattr(end, "reason", None) for end in ends] == ["host_busy"] * 3 + [None]
        return order

    assert asyncio.run(scene()) == ["other"]


def test_a_host_that_fails_again_and_again_is_left_alone() -> None:
    async def fail(transfer_slots: TransferSlots, tried: list[str]) -> None:
        async with transfer_slots.at("h", 1):
            tried.append("h")
            await asyncio.sleep(0)
            raise Reasoned("connect", "refused")

    async def scene() -> int:
        transfer_slots, tried = TransferSlots(4, breaker_failures=3), list[str]()
        await asyncio.gather(*(fail(transfer_slots, tried) for _ in range(20)), return_exceptions=True)
        return len(tried)

    assert asyncio.run(scene()) == 3


def test_the_short_way_to_a_finalize_key_is_the_key() -> None:
    assert finalize_key("0190-job", "ab" * 32) == op_key("FINALIZE", "0190-job", sha256="ab" * 32)
