"""Migrating: the one place where an existing ledger's schema changes, because somebody asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from longshore.depot.wiring import ledger_place
from longshore.errors import NoDepot
from longshore.ledger import schema

if TYPE_CHECKING:
    from longshore.config import Settings


def migrate(settings: Settings, *, dry_run: bool = False) -> tuple[int, int, list[str]]:
    """Apply what is pending; give the version before, the version after and the names of what was pending."""
    where = ledger_place(settings)
    if isinstance(where, Path) and not where.exists():
        raise NoDepot(f"there is no ledger at {where}")
    return schema.migrate(where, dry_run=dry_run)
