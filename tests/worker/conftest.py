"""A depot in a temporary directory and a hostile origin beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from longshore.config import load_settings
from longshore.depot import Depot
from tests.support.ledgers import engine, where
from tests.support.origin import Origin
from tests.support.postgres import postgres_cluster

__all__ = ["engine", "postgres_cluster", "where"]  # fixtures
MakeDepot = Callable[..., Depot]


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server


@pytest.fixture
def make_depot(tmp_path: Path) -> Iterator[MakeDepot]:
    """Make depots that may talk to loopback and do not wait long between attempts."""
    opened = []

    def make(where: str = "depot", **flags: Any) -> Depot:
        given: dict[str, Any] = {
            "network": {"allow": ["127.0.0.0/8"]},
            "retry": {"base_s": 0.01, "cap_s": 0.05},
            **flags,
        }
        depot = Depot(settings=load_settings(tmp_path / where, environ={}, **given))
        opened.append(depot)
        return depot

    yield make
    for depot in opened:
        depot.close()


@pytest.fixture
def depot(make_depot: MakeDepot) -> Depot:
    return make_depot()
