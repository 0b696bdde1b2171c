"""Books and their assets: where a book stands follows from what is available of it."""

from __future__ import annotations

from collections.abc import Sequence

from longshore.domain.model import Scope
from longshore.domain.torrents import book_state
from longshore.ledger.tx import Tx


def recompute_book(tx: Tx, scope: Scope, book_id: str) -> str:
    """Derive where a book stands from its assets."""
    where = {"tenant_id": scope.tenant_id, "project_id": scope.project_id, "book_id": book_id}
    row = tx.one("book_assets", **where)
    state = book_state(int(row[0]) if row else 0)
    tx.run("book_state", **where, state=state, now=tx.now)
    return state


def mark_assets(tx: Tx, scope: Scope, artifact_ids: Sequence[str], status: str) -> None:
    """Let assets follow their artifacts, `available` or `missing`, and books their assets."""
    changed = tx.many("asset_mark", [(status, tx.now, *scope, artifact_id) for artifact_id in artifact_ids])
    for book_id in sorted({row[0] for row in changed}):
        recompute_book(tx, scope, book_id)
