"""Every state that two workers and one job can get into, on the real ledger and store: at most one result, nothing damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.exploring import Bounds, explore


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_two_workers_and_a_lease_that_runs_out(tmp_path: Path) -> None:
    """Without deaths, cancels and reconcilers."""
    found = explore(tmp_path, Bounds(deaths=0, expiries=1, cancel=False, reconcile=False))
    assert found.ends == {"processing", "completed"}
    assert found.states > 50
    print(found)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_everything_may_happen_anywhere(tmp_path: Path) -> None:
    found = explore(tmp_path, Bounds(deaths=1, expiries=2, cancel=True, reconcile=True), say=print)
    assert found.ends == {"pending", "processing", "completed", "canceled"}
    print(found)
