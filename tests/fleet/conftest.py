"""A fleet without hosts, on servers that the tests of this process share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Fleet
from tests.support.origin import Origin
from tests.support.postgres import Cluster, own_postgres_cluster, postgres_cluster
from tests.support.weed import Weed, own_weed, weed

__all__ = ["own_postgres_cluster", "own_weed", "postgres_cluster", "weed"]
MakeFleet = Callable[..., Fleet]


@pytest.fixture
def make_fleet(postgres_cluster: Cluster, weed: Weed, tmp_path: Path) -> Iterator[MakeFleet]:
    made: list[Fleet] = []

    def make(cluster: Cluster = postgres_cluster, store: Weed = weed, **how: Any) -> Fleet:
        made.append(Fleet(cluster, store, tmp_path, **how))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server
