from __future__ import annotations

from tests.worker.conftest import engine, make_depot, origin, postgres_cluster, where

__all__ = ["engine", "make_depot", "origin", "postgres_cluster", "where"]
