"""From what a person writes to a store."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs

from longshore.errors import BadInput
from longshore.store.contract import Store
from longshore.store.layout import nothing_at
from longshore.store.local import LocalStore
from longshore.store.settings import StoreSettings


def open_store(where: str | Path, settings: StoreSettings | None = None) -> Store:
    """Open a store by its place: a directory, `s3://bucket/prefix` or `postgresql://…`."""
    text, settings = str(where), settings or StoreSettings()
    scheme = text.partition("://")[0] if "://" in text else ""
    if scheme in ("", "file"):
        return LocalStore(Path(text.removeprefix("file://")), settings)
    if scheme == "s3":
        from longshore.store.remote import RemoteStore
        from longshore.store.s3 import S3Objects

        return RemoteStore(S3Objects(text, settings), settings.parts or _parts_of(text), settings)
    if scheme in ("postgresql", "postgres"):
        from longshore.store.postgres import PostgresObjects
        from longshore.store.remote import RemoteStore

        return RemoteStore(PostgresObjects(text), settings.parts or _parts_of(text), settings)
    raise BadInput(f"a store is a directory, s3://… or postgresql://…, not {scheme}://…")


def missing_store(where: str | Path) -> str | None:
    """Say what is there instead, if no store was ever begun at this place; None where one was, or only opening it tells."""
    text = str(where)
    return None if "://" in text.removeprefix("file://") else nothing_at(text.removeprefix("file://"))


def _parts_of(where: str) -> Path:
    """Parts wait on this machine; one directory per store, without its credentials in the name."""
    url = urlsplit(where)
    place = f"{url.scheme}://{url.hostname}:{url.port}{url.path}"
    return platformdirs.user_cache_path("longshore") / "parts" / hashlib.sha256(place.encode()).hexdigest()[:16]
