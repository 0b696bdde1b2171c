"""Fixtures of the ledger's tests: every test that takes `ledger` runs on both engines."""

from tests.support.ledgers import clock, engine, ledger, postgres_ledger, where
from tests.support.postgres import own_postgres_cluster, postgres_cluster, postgres_dsn

__all__ = [
    "clock",
    "engine",
    "ledger",
    "own_postgres_cluster",
    "postgres_cluster",
    "postgres_dsn",
    "postgres_ledger",
    "where",
]
