"""The ledger's own id, which its stores carry, and the version of its schema."""

from __future__ import annotations

from longshore.ledger.ids import new_id
from longshore.ledger.transaction import Tx


def schema_version(tx: Tx) -> str:
    """Return the version of the schema."""
    (version,) = tx.one("depot_schema") or ("?",)
    return str(version)


def ledger_id(tx: Tx) -> str | None:
    """Return the id of this ledger, which its stores carry; None if it has none yet."""
    row = tx.one("ledger_id")
    return str(row[0]) if row else None


def make_ledger_id(tx: Tx) -> str | None:
    """Create the ledger's id if it has none, and return it."""
    tx.run("ledger_id_insert", value=new_id(tx.now))
    return ledger_id(tx)
