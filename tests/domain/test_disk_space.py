"""What a disk lacks: every case of the table."""

from __future__ import annotations

import pytest

from longshore.domain.policy.disk_space import LEAST_BYTES, Lack, growth_lack, lack_of, never_fits

MIB = 1 << 20


@pytest.mark.parametrize(
    ("free", "reserved", "need", "lack"),
    [
        (100, 0, 90, None),
        (100, 0, 91, Lack.NOT_NOW),
        (100, 50, 40, None),
        (100, 50, 41, Lack.PROMISED),
        (100, 50, 90, Lack.PROMISED),
        (100, 50, 91, Lack.NOT_NOW),
        (10, 0, 0, None),
        (10, 0, 1, Lack.FULL),
        (9, 0, 0, Lack.FULL),
        (0, 0, 10**9, Lack.FULL),
        (11, 0, 2, Lack.NOT_NOW),
        (11, 2, 0, Lack.PROMISED),
    ],
)
def test_lack(free: int, reserved: int, need: int, lack: Lack | None) -> None:
    assert lack_of(free=free * MIB, reserved=reserved * MIB, floor=10 * MIB, need=need * MIB) is lack


def test_a_disk_is_full_just_above_its_floor() -> None:
    assert lack_of(free=LEAST_BYTES - 1, reserved=0, floor=0, need=LEAST_BYTES) is Lack.FULL
    assert lack_of(free=LEAST_BYTES, reserved=0, floor=0, need=LEAST_BYTES + 1) is Lack.NOT_NOW


@pytest.mark.parametrize(
    ("nbytes", "capacity", "floor", "never"),
    [
        (90, 100, 10, False),
        (91, 100, 10, True),
        (1 << 50, 100, 10, True),
        (100, 100, 0, False),
        (1, 100, 100, False),  # nothing fits, whatever its size: a setting, and told as a full disk
        (1, 100, 1 << 60, False),
    ],
)
def test_never(nbytes: int, capacity: int, floor: int, never: bool) -> None:
    assert never_fits(nbytes, capacity=capacity, floor=floor) is never


@pytest.mark.parametrize(
    ("free", "written", "lack"), [(0, 50, Lack.OUTGROWN), (9, 2, Lack.OUTGROWN), (0, 5, Lack.FULL), (0, 0, Lack.FULL)]
)
def test_who_filled_it(free: int, written: int, lack: Lack) -> None:
    assert growth_lack(free=free * MIB, floor=10 * MIB, written=written * MIB) is lack
