from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ledgers import clock, engine, ledger, where
from tests.support.postgres import postgres_cluster, postgres_dsn
from tests.support.qbt import Swarm, swarm

__all__ = ["clock", "engine", "ledger", "postgres_cluster", "postgres_dsn", "shared", "version", "where"]
TORTURE = pytest.mark.torture


@pytest.fixture(scope="module", params=["v4", pytest.param("v5", marks=TORTURE), pytest.param("newest", marks=TORTURE)])
def version(request: pytest.FixtureRequest) -> str:
    """Which real client a test talks to; CI has the system's, `make torture` all of them."""
    return str(request.param)


@pytest.fixture(scope="module")
def shared(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """One client, tracker and seeder for a whole module; every test uses torrents of its own."""
    with swarm(tmp_path_factory.mktemp("swarm"), version=version) as running:
        yield running
