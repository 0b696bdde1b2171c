"""The soak, with a seed: at the end everything is over, the witness is silent, and nothing is held that was not held before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.torture.schedule import FAULTS, FAULTY, LONG, POINTS, SHORT, Size, schedule
from tests.torture.soak import soak

MIB = 1 << 20
PINNED = [
    ("point_delay", 5, "flow.received", 2),
    ("server", 2, "", 1),
    ("kill", 6, "", 1),
    ("point_raise", 5, "publish.clean", 1),
]


def test_a_schedule_is_a_pure_function_of_its_seed() -> None:
    assert schedule(7) == schedule(7)
    assert schedule(7).told() == schedule(7).told()
    assert schedule(7) != schedule(8)
    assert schedule(7, LONG) == schedule(7, LONG)


def test_this_seed_stays_what_it_was() -> None:
    """A seed written down in a report must mean the same on another machine and with another Python."""
    first, second = schedule(1, Size(files=3, rounds=2, workers=2)).rounds
    assert [(fault.kind, fault.after, fault.point, fault.hit) for fault in (*first, *second)] == PINNED


def test_every_kind_of_fault_comes_up() -> None:
    drawn = schedule(1, LONG)
    assert {fault.kind for faults in drawn.rounds for fault in faults} == set(FAULTS)
    assert {kind for body in drawn.bodies for kind in body.faults} == set(FAULTY)
    assert {fault.point for faults in drawn.rounds for fault in faults} <= {*POINTS, ""}
    assert any(body.gone for body in drawn.bodies)
    assert {fault.kind for faults in schedule(3).rounds for fault in faults} == set(
        FAULTS
    )  # twelve draws, eleven kinds


def at_baseline(weights: list[dict[str, int]]) -> None:
    """After the second run a process holds what it held after the first."""
    _, after, at_last = weights
    assert at_last["descriptors"] <= after["descriptors"]
    assert at_last["threads"] <= after["threads"]
    assert at_last["resident"] < after["resident"] + 16 * MIB


def sane(verdict: dict[str, Any], files: int) -> None:
    assert sum(verdict["counts"].values()) >= files
    assert set(verdict["counts"]) <= {"completed", "failed", "canceled", "skipped"}
    at_baseline(verdict["weights"])


@pytest.mark.torture
@pytest.mark.timeout(900)
def test_a_short_one(tmp_path: Path) -> None:
    sane(soak(schedule(7), tmp_path), SHORT.files)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 106))
def test_short_ones(tmp_path: Path, seed: int) -> None:
    sane(soak(schedule(seed), tmp_path), SHORT.files)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(200, 203))
def test_short_ones_on_postgres(tmp_path: Path, seed: int) -> None:
    sane(soak(schedule(seed), tmp_path, postgres=True), SHORT.files)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_a_long_one(tmp_path: Path) -> None:
    """`make torture SOAK_SEED=N` for another one."""
    seed = int(os.environ.get("SOAK_SEED", "1"))
    sane(soak(schedule(seed, LONG), tmp_path, say=print), LONG.files)
