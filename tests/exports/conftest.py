"""Ledgers on both engines."""

from tests.support.ledgers import clock, engine, ledger, where
from tests.support.postgres import postgres_cluster

__all__ = ["clock", "engine", "ledger", "postgres_cluster", "where"]
