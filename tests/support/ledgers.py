"""Ledgers for tests, on both engines: `ledger` runs a test twice, with a clock that stands still until it is told to move.

Import the fixtures into a conftest: `from tests.support.ledgers import clock, engine, ledger, where  # noqa: F401`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.domain.model import SECOND, Micros
from longshore.ledger import Ledger
from tests.support.postgres import Cluster

START: Micros = 1_800_000_000 * SECOND


class Clock:
    """The ledger's time in a test."""

    def __init__(self, now: Micros = START) -> None:
        self.now = now

    def __call__(self) -> Micros:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += int(seconds * SECOND)


def build_template(dsn: str) -> None:
    """Make an empty ledger, to be copied."""
    Ledger.open(dsn, create=True).close()


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    """The engine of a test that runs on both."""
    return str(request.param)


@pytest.fixture
def where(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The place of a ledger that exists and is empty. (On PostgreSQL the same database, emptied before each test.)"""
    if engine == "sqlite":
        Ledger.open(tmp_path / "ledger.db", create=True).close()
        yield str(tmp_path / "ledger.db")
        return
    cluster: Cluster = request.getfixturevalue("postgres_cluster")
    yield cluster.emptied(cluster.template("ledger_shared", build_template))


@pytest.fixture
def postgres_ledger(postgres_cluster: Cluster) -> Iterator[str]:
    """A database of one test's own, with an empty ledger: for tests that change its schema or count on being alone."""
    with postgres_cluster.database(postgres_cluster.template("ledger", build_template)) as dsn:
        yield dsn


@pytest.fixture
def clock() -> Clock:
    """A time that a test moves."""
    return Clock()


@pytest.fixture
def ledger(where: str, clock: Clock) -> Iterator[Ledger]:
    """An empty ledger on either engine."""
    with Ledger.open(where, clock=clock) as opened:
        yield opened
