"""Books and their assets: where a book stands follows from what is available of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longshore.domain.model import Scope
from longshore.domain.torrents.model import book_state
from longshore.ledger.rows import encoded
from longshore.ledger.transaction import Tx


@dataclass(frozen=True, slots=True)
class BookStatus:
    """Where a book stands, and its asset of one medium if it has one."""

    state: str  # Archive | Library
    status: str | None  # of the asset: available | missing | removed
    storage_path: str | None
    artifact_id: str | None  # of a torrent with several files, the one that stands for them
    job_id: str | None  # whose results are the asset's files


def book_status(tx: Tx, scope: Scope, book_id: str, media_type: str) -> BookStatus | None:
    """Return a book's status; None if it was never requested."""
    tx.enter(scope.tenant_id)
    row = tx.one("book_show", **scope._asdict(), book_id=book_id, media_type=media_type)
    return BookStatus(*row) if row is not None else None


def recompute_book(tx: Tx, scope: Scope, book_id: str) -> str:
    """Derive where a book stands from its assets."""
    where = {"tenant_id": scope.tenant_id, "project_id": scope.project_id, "book_id": book_id}
    (available,) = tx.one("book_assets", **where) or (0,)
    state = book_state(int(available))
    tx.run("book_state", **where, state=state, now=tx.now)
    return state


def mark_assets(tx: Tx, scope: Scope, artifact_ids: Sequence[str]) -> None:
    """Mark the assets of these artifacts available, or missing if any artifact is, and recompute their books."""
    if not artifact_ids:
        return
    found = tx.all("assets_of", **scope._asdict(), artifact_ids=encoded(list(artifact_ids)))
    tx.send(
        "asset_mark",
        [("missing" if lost else "available", tx.now, *scope, book_id, kind) for book_id, kind, lost in found],
    )
    for book_id in sorted({book_id for book_id, _, _ in found}):
        recompute_book(tx, scope, book_id)
