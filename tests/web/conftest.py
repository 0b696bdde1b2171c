from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ledgers import clock, engine, ledger, where
from tests.support.postgres import postgres_cluster
from tests.support.site import Site

__all__ = ["clock", "engine", "ledger", "postgres_cluster", "site", "where"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server for a module; tests keep apart by tenant."""
    with Site.local(tmp_path_factory.mktemp("depot")) as running:
        yield running
