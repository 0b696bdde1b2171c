"""Open a store from its URL or path."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs

from longshore.domain.places import is_address, without_login
from longshore.domain.settings import Settings
from longshore.errors import BadInput
from longshore.store.api import Store
from longshore.store.local.layout import nothing_at
from longshore.store.local.store import LocalStore


def open_store(
    where: str | Path, settings: Settings | None = None, *, parts: Path | None = None, ledger_id: str | None = None
) -> Store:
    """Open a store by its place: a directory, `s3://bucket/prefix` or `postgresql://…`.

    `parts` is the local directory for incomplete bodies of a remote store. With `ledger_id` the store is claimed for
    that ledger; a store that belongs to another ledger is refused.
    """
    text, settings = str(where), settings or Settings()
    scheme = text.partition("://")[0] if "://" in text else ""
    if scheme == "file" or not is_address(text):
        return LocalStore(Path(text.removeprefix("file://")), settings, ledger_id=ledger_id)
    if scheme == "s3":
        from longshore.store.remote.object_store import RemoteStore
        from longshore.store.remote.s3_objects import S3Objects

        return RemoteStore(S3Objects(text, settings.s3), parts or _parts_of(text), settings, ledger_id)
    if scheme in ("postgresql", "postgres"):
        from longshore.store.remote.object_store import RemoteStore
        from longshore.store.remote.postgres_objects import PostgresObjects

        return RemoteStore(PostgresObjects(text), parts or _parts_of(text), settings, ledger_id)
    raise BadInput(f"a store is a directory, s3://… or postgresql://…, not {without_login(text)}")


def missing_store(where: str | Path) -> str | None:
    """Describe what is at `where` if no store was ever created there; return None if one was, or may have been."""
    text = str(where)
    return None if "://" in text.removeprefix("file://") else nothing_at(text.removeprefix("file://"))


def _parts_of(where: str) -> Path:
    """Return the local parts directory of a remote store; its name does not contain the store's credentials."""
    url = urlsplit(where)
    place = f"{url.scheme}://{url.hostname}:{url.port}{url.path}"
    return platformdirs.user_cache_path("longshore") / "parts" / hashlib.sha256(place.encode()).hexdigest()[:16]
