"""A large body over several connections: the same bytes, the same hash, no more connections than the host allows."""

from __future__ import annotations

import asyncio
from pathlib import Path

from longshore.domain.kinds import Status
from longshore.worker.transfer_slots import TransferSlots
from tests.support.nginx import Nginx
from tests.support.origin import check_stamps, stamped
from tests.worker.conftest import MakeDepot


def test_a_slow_body_comes_over_several_connections_and_is_whole(make_depot: MakeDepot, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "large.bin").write_bytes(stamped(1, 8_000_000))
    with Nginx(root, rate="1m") as server:
        depot = make_depot(transfer={"segments": 6}, hosts={"concurrency": 6})
        got = depot.get([f"{server.http}/slow/large.bin"])[0]
        assert got.status is Status.COMPLETED
        assert got.path is not None
        assert check_stamps(got.path.read_bytes()) == 1
        log = (server.home / "access.log").read_text()
    assert log.count('" 206 ') >= 1


def test_a_further_connection_needs_a_free_place_that_nobody_waits_for() -> None:
    async def scene() -> None:
        transfer_slots = TransferSlots(4)
        async with transfer_slots.at("h", 2):
            assert transfer_slots.try_take("h", 2)
            assert not transfer_slots.try_take("h", 2)  # the host's limit
            waiting = asyncio.create_task(_hold(transfer_slots))
            await asyncio.sleep(0)
            assert not transfer_slots.try_take("other", 2)  # somebody waits: he comes first
            transfer_slots.give("h")
            await waiting
        assert transfer_slots.free == 4

    asyncio.run(scene())


async def _hold(transfer_slots: TransferSlots) -> None:
    async with transfer_slots.at("h", 2):
        pass
