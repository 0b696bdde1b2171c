"""Batches of the publisher: full ones leave, others wait a little while more may come, and nobody waits for nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longshore.domain.model import Blob, Lease
from longshore.domain.settings import HostsSettings
from longshore.errors import StoreError
from longshore.ledger import Ledger
from longshore.store import Staged
from longshore.store.local.store import LocalStore
from longshore.worker import publisher as module
from longshore.worker.publisher import Publisher
from longshore.worker.transfer_slots import TransferSlots
from tests.ledger.acts import plan

ITEMS = 8
FREE = HostsSettings(concurrency=1_000)


class Counting(LocalStore):
    """A local store that remembers how large its batches were."""

    batches: list[int]

    def stage(self, items: Sequence[Staged]) -> list[StoreError | None]:
        self.batches.append(len(items))
        return super().stage(items)


class Scene:
    """A publisher on a real ledger and a real store, with leases to publish for."""

    def __init__(self, ledger: Ledger, store: Counting, threads: ThreadPoolExecutor) -> None:
        plan(ledger, 100)
        self.leases = iter(ledger.claim("w", limit=100, ttl_s=60, defaults=FREE))
        self.store = store
        self.slots = TransferSlots(4)
        self.publisher = Publisher(ledger, store, threads, self.slots, items=ITEMS, size=1 << 20)

    def publish(self) -> asyncio.Future[Blob]:
        lease: Lease = next(self.leases)
        body = lease.job_id.encode()
        sha256 = hashlib.sha256(body).hexdigest()
        staged = Staged(lease.scope, lease.job_id, lease.epoch, sha256, len(body), "text/plain", body)
        return self.publisher.publish(lease, staged, {"content_type": "text/plain"})


def play(tmp_path: Path, act: Callable[[Scene], Coroutine[None, None, None]]) -> None:
    Counting.batches = []
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger, ThreadPoolExecutor(2) as threads:
        store = Counting(tmp_path / "store")
        try:
            asyncio.run(act(Scene(ledger, store, threads)))
        finally:
            store.close()


def test_nobody_waits_when_nothing_else_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 3600.0)

    async def act(one: Scene) -> None:
        await one.publish()
        assert one.store.batches == [1]

    play(tmp_path, act)


def test_a_full_batch_leaves_and_a_short_one_waits_for_company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 3600.0)

    async def act(one: Scene) -> None:
        await one.slots.take("h", 1)  # a transfer goes on
        early = [one.publish() for _ in range(ITEMS - 1)]
        await asyncio.sleep(0.05)  # not for synchronisation: whatever it waits for, it must still be waiting
        assert one.store.batches == []
        await asyncio.gather(*early, one.publish())
        assert one.store.batches == [ITEMS]

    play(tmp_path, act)


def test_company_that_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    async def act(one: Scene) -> None:
        await one.slots.take("h", 1)  # a transfer goes on
        await one.publish()
        assert one.store.batches == [1]

    play(tmp_path, act)


def test_the_last_ones_leave_when_the_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 3600.0)

    async def act(one: Scene) -> None:
        await one.slots.take("h", 1)  # a transfer goes on
        left = [one.publish() for _ in range(3)]
        await one.publisher.idle()
        assert all(done.done() for done in left)
        assert one.store.batches == [3]

    play(tmp_path, act)
