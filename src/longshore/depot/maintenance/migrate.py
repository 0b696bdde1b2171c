"""Migrations: the only place where an existing ledger's schema changes, and only on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longshore.depot.derived_settings import ledger_place
from longshore.ledger import Ledger
from longshore.ledger.ledger import is_postgres
from longshore.ledger.migrate import current_version

if TYPE_CHECKING:
    from longshore.config import Settings


def migrate(settings: Settings) -> tuple[int, list[int]]:
    """Apply pending migrations; return the resulting schema version and the applied versions."""
    where = ledger_place(settings)
    return current_version("postgres" if is_postgres(where) else "sqlite"), Ledger.apply_migration(where)
