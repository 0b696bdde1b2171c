"""Books of a media library and their assets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longshore.domain.identity.keys import check_text
from longshore.domain.model import Micros, Scope
from longshore.errors import NotFound
from longshore.ledger.queries.lookup import checked_limit, scope_values
from longshore.ledger.rows import encoded
from longshore.ledger.transaction import Tx


@dataclass(frozen=True, slots=True)
class Asset:
    """One medium of a book. Where its files lie is not told: `job_id` has them as results."""

    book_id: str
    media_type: str
    status: str  # available | missing | removed
    artifact_id: str | None  # of several files, the one that stands for them
    job_id: str | None
    updated_at: Micros


@dataclass(frozen=True, slots=True)
class Book:
    """A book."""

    book_id: str
    state: str  # Archive | Library
    updated_at: Micros
    assets: tuple[Asset, ...] = ()


def books(tx: Tx, scope: Scope, *, after: str = "", limit: int = 100) -> list[Book]:
    """Return a page of the books with their assets, in the order of their ids."""
    where = scope_values(tx, scope)
    rows = tx.all("books_page", after=check_text("cursor", after, empty=True), many=checked_limit(limit), **where)
    return _with_assets(tx, scope, rows)


def book(tx: Tx, scope: Scope, book_id: str) -> Book:
    """Return one book with its assets, or raise NotFound."""
    where = scope_values(tx, scope)
    rows = tx.all("book_one", book_id=check_text("book", book_id), **where)
    if not rows:
        raise NotFound(f"book {book_id[:80]} not found")
    return _with_assets(tx, scope, rows)[0]


def _with_assets(tx: Tx, scope: Scope, rows: Sequence[tuple[str, str, Micros]]) -> list[Book]:
    ids = encoded([book_id for book_id, _, _ in rows])
    assets: dict[str, list[Asset]] = {}
    for row in tx.all("assets_of_books", **scope._asdict(), book_ids=ids) if rows else ():
        asset = Asset(*row)
        assets.setdefault(asset.book_id, []).append(asset)
    return [Book(book_id, state, at, tuple(assets.get(book_id, ()))) for book_id, state, at in rows]
