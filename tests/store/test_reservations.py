"""Room: reserved before it is used, by all processes together, with a floor and budgets."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from longshore.domain.model import Scope
from longshore.domain.policy.disk_space import Lack
from longshore.domain.settings import QuotaSettings, Settings
from longshore.errors import DiskFull, NeverFits, OverBudget
from longshore.store import LocalStore
from longshore.store.staging import reservations
from tests.store.publishing import NO_FLOOR, SCOPE, publish, staged
from tests.support.disks import small_disk

MIB = 1 << 20


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A disk whose free bytes the test sets."""
    amount = [100 * MIB]
    monkeypatch.setattr(reservations.Reservations, "_free", lambda _: amount[0])
    return amount


def opened(root: Path, **quota: float) -> LocalStore:
    settings = QuotaSettings(**{"free_bytes_min": 10 * MIB, "margin_factor": 1.0, **quota})
    return LocalStore(root, Settings(quota=settings))


def test_ten_ask_and_three_fit(tmp_path: Path, free: list[int]) -> None:
    store = opened(tmp_path)
    held = []
    for _ in range(10):
        try:
            held.append(store.reserve(SCOPE, 30 * MIB))
        except DiskFull:
            continue
    assert len(held) == 3
    assert store.room().available_bytes == 0
    held[0].release()
    assert store.room().available_bytes == 30 * MIB
    store.reserve(SCOPE, 30 * MIB)
    store.close()


def test_two_stores_count_each_others_bytes(tmp_path: Path, free: list[int]) -> None:
    one, two = opened(tmp_path), opened(tmp_path)
    one.reserve(SCOPE, 60 * MIB)
    with pytest.raises(DiskFull):
        two.reserve(SCOPE, 60 * MIB)
    assert two.room().reserved_bytes == 60 * MIB
    one.close()
    two.reserve(SCOPE, 60 * MIB)
    two.close()


def test_what_a_dead_process_reserved_is_free(tmp_path: Path, free: list[int]) -> None:
    code = f"""
from pathlib import Path; import os
from longshore.domain.model import Scope
from longshore.domain.settings import QuotaSettings, Settings
from longshore.store import LocalStore
store = LocalStore(Path({str(tmp_path)!r}), Settings(quota=QuotaSettings(free_bytes_min=0, margin_factor=1.0)))
store.reserve(Scope(), 2 << 20)
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    assert list((tmp_path / ".staging/room").glob("*.sum"))
    store = opened(tmp_path)
    assert store.room().reserved_bytes == 0
    assert not list((tmp_path / ".staging/room").glob("*.sum"))
    store.close()


def test_bytes_on_the_disk_are_not_counted_twice(tmp_path: Path, free: list[int]) -> None:
    store = opened(tmp_path)
    part = store.part(SCOPE, "job", 1)
    part.reservation = store.reserve(SCOPE, 80 * MIB)
    part.write(bytes(20 * MIB))
    free[0] -= 20 * MIB
    assert store.room().reserved_bytes == 60 * MIB
    assert store.room().available_bytes == 10 * MIB
    part.discard()
    assert store.room().reserved_bytes == 0
    store.close()


def test_margin_and_floor(tmp_path: Path, free: list[int]) -> None:
    store = opened(tmp_path, margin_factor=2.0)
    with pytest.raises(DiskFull, match="must stay free"):
        store.reserve(SCOPE, 50 * MIB)
    store.reserve(SCOPE, 40 * MIB).release()
    free[0] = 10 * MIB
    with pytest.raises(DiskFull):
        store.reserve(SCOPE, 1)
    assert list(store.parts()) == []
    store.close()


def test_a_body_of_unknown_length_stops_at_the_floor(tmp_path: Path, free: list[int]) -> None:
    store = opened(tmp_path)
    part = store.part(SCOPE, "job", 1)
    part.reservation = store.reserve(SCOPE, 0)
    part.write(bytes(17 * MIB))
    free[0] = 9 * MIB
    with pytest.raises(DiskFull):
        part.write(bytes(17 * MIB))
    part.discard()
    store.close()


def test_a_body_of_unknown_length_stops_at_the_budget(tmp_path: Path, free: list[int]) -> None:
    store = opened(tmp_path, tenant_bytes=3 * MIB)
    one, two = (store.part(SCOPE, name, 1) for name in ("one", "two"))
    one.reservation, two.reservation = store.reserve(SCOPE, 0), store.reserve(SCOPE, MIB)
    one.write(bytes(MIB))
    two.write(bytes(MIB))
    one.write(bytes(MIB))
    with pytest.raises(OverBudget):  # a length that lied is no way around it either
        two.write(b"x")
    with pytest.raises(OverBudget):
        one.write(b"x")
    with pytest.raises(OverBudget):
        store.reserve(SCOPE, 1)
    two.discard()
    store.reserve(SCOPE, MIB).release()
    one.discard()
    store.reserve(SCOPE, 3 * MIB).release()
    store.close()


def test_small_bodies_stop_at_the_floor_and_at_the_budget(tmp_path: Path, free: list[int]) -> None:
    store = opened(tmp_path, tenant_bytes=1000)
    held = staged(bytes(600), "a")
    publish(store, held)
    items = [staged(b"x" * 300, "b"), staged(b"y" * 300, "c"), staged(bytes(600), "d")]
    outcomes = store.stage(items)
    assert [type(outcome) for outcome in outcomes] == [type(None), OverBudget, type(None)]  # the last is held already
    store.clean(items)
    free[0] = 10 * MIB + 100
    outcomes = store.stage(items[:1])
    assert [type(outcome) for outcome in outcomes] == [DiskFull]
    assert list(store.parts()) == []
    store.close()


def test_a_tenants_budget(tmp_path: Path, free: list[int]) -> None:
    store = opened(tmp_path, tenant_bytes=1000)
    publish(store, staged(bytes(600)))
    with store.reserve(SCOPE, 300):
        with pytest.raises(OverBudget) as refused:
            store.reserve(SCOPE, 300)
        assert refused.value.reason == "quota_exceeded"
        store.reserve(Scope("other", "p"), 900).release()
    publish(store, staged(bytes(300), "second"))
    with pytest.raises(OverBudget):
        store.reserve(SCOPE, 101)
    store.count_by(lambda _: 0)
    store.reserve(SCOPE, 1000).release()
    store.close()


def test_what_lacks_is_told(tmp_path: Path, free: list[int]) -> None:
    store = opened(tmp_path)
    with pytest.raises(NeverFits) as never:
        store.reserve(SCOPE, 1 << 60)
    assert never.value.reason == "too_large"
    for need, lack in ((91 * MIB, Lack.NOT_NOW), (70 * MIB, Lack.PROMISED)):
        with store.reserve(SCOPE, 30 * MIB), pytest.raises(DiskFull) as refused:
            store.reserve(SCOPE, need)
        assert refused.value.lack == lack
    assert store.full() is None
    free[0] = 10 * MIB + 100
    with pytest.raises(DiskFull) as refused:
        store.reserve(SCOPE, MIB)
    assert refused.value.lack == Lack.FULL
    assert "must stay free" in (store.full() or "")
    store.close()


def test_a_body_that_outgrows_the_disk_is_told_from_a_disk_that_others_fill(tmp_path: Path, free: list[int]) -> None:
    store = opened(tmp_path)
    lacks = []
    for left in (9 * MIB, 0):
        free[0] = 100 * MIB
        part = store.part(SCOPE, "job", 1)
        part.write(bytes(15 * MIB))
        free[0] = left
        with pytest.raises(DiskFull) as refused:
            part.write(bytes(2 * MIB))
        lacks.append(refused.value.lack)
        part.discard()
    assert lacks == [Lack.OUTGROWN, Lack.OUTGROWN]
    free[0] = 100 * MIB
    announced = store.part(SCOPE, "job", 2)
    announced.reservation = store.reserve(SCOPE, 40 * MIB)
    announced.write(bytes(15 * MIB))
    free[0] = 0
    announced.write(bytes(2 * MIB))  # within its promise nothing is looked at: the file system itself says no
    announced.discard()
    store.close()


def test_small_bodies_that_fit_one_by_one_are_not_all_refused(tmp_path: Path, free: list[int]) -> None:
    store = opened(tmp_path)
    free[0] = 12 * MIB
    items = [staged(bytes([n]) * MIB, f"job{n}") for n in range(3)]
    outcomes = store.stage(items)
    assert [type(outcome) for outcome in outcomes] == [type(None), type(None), DiskFull]
    assert isinstance(outcomes[2], DiskFull)
    assert outcomes[2].lack == Lack.PROMISED
    store.clean(items)
    store.close()


def test_a_disk_without_inodes_is_full() -> None:
    with small_disk("16m", 40) as disk:
        store = LocalStore(disk / "store", NO_FLOOR)
        assert store.full() is None
        with suppress(OSError):
            for n in range(40):
                (disk / f"{n}").touch()
        assert store.full() == "No space left on device"
        (disk / "0").unlink()
        assert store.full() is None
        store.close()
