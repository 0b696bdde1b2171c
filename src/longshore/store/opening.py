"""From what a person writes to a store."""

from __future__ import annotations

from pathlib import Path

from longshore.errors import BadInput
from longshore.store.contract import Store
from longshore.store.local import LocalStore
from longshore.store.settings import StoreSettings


def open_store(where: str | Path, settings: StoreSettings | None = None) -> Store:
    """Open a store by its place: a directory, `s3://bucket/prefix` or `postgresql://…`."""
    text = str(where)
    scheme = text.partition("://")[0] if "://" in text else ""
    if scheme in ("", "file"):
        return LocalStore(Path(text.removeprefix("file://")), settings)
    raise BadInput(f"a store is a directory, s3://… or postgresql://…, not {scheme}://…")
