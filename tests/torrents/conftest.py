from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ledgers import clock, engine, ledger, where
from tests.support.postgres import postgres_cluster, postgres_dsn
from tests.support.qbt import Swarm, swarm

__all__ = ["clock", "engine", "ledger", "postgres_cluster", "postgres_dsn", "shared", "where"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """One client, tracker and seeder for a whole module; every test uses torrents of its own."""
    with swarm(tmp_path_factory.mktemp("swarm")) as running:
        yield running
