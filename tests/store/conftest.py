from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.store import LocalStore
from tests.support.postgres import own_postgres_cluster, postgres_cluster, postgres_dsn
from tests.support.weed import own_weed, weed

__all__ = ["own_postgres_cluster", "own_weed", "postgres_cluster", "postgres_dsn", "weed"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    store = LocalStore(tmp_path / "store")
    yield store
    store.close()
