"""Blobs in a directory that is not theirs: copied by hand, or by another program. They are moved to their place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from longshore.store import blob_names
from longshore.store.durability import filesystem
from longshore.store.verify_blob import problem_with

if TYPE_CHECKING:
    from longshore.store.local.store import LocalStore
    from longshore.store.records import StoredBlob


def rehome(store: LocalStore, held: StoredBlob, why: str, *, dry_run: bool = False) -> str | None:
    """See `Store`. Through quarantine, from where an interrupted move is completed by the next pass."""
    *path, file = held.pointer.split("/")
    wanted = blob_names.place(held.scope, held.sha256, file[64:], store.settings.shard.width).pointer
    if held.pointer == wanted:
        return None
    if dry_run:
        return "it would be moved to its own"
    with filesystem.told("moving a blob to its shard"):
        root = os.open(store.root, filesystem.DIRECTORY)
        try:
            stray = filesystem.open_path(tuple(path), root)
        finally:
            os.close(root)
        try:
            is_good = _is_intact(held, file, stray) and store.stat(held.scope, held.sha256) is None
            name = store.staging.quarantine.take(held.scope, file, stray, why=why, pointer=wanted if is_good else None)
        finally:
            os.close(stray)
        if is_good and store.restore(held.scope, name):
            return "it was moved to its own"
        return f"it is damaged or there is another one; it was moved to quarantine as {name}"


def _is_intact(held: StoredBlob, file: str, directory: int) -> bool:
    with os.fdopen(os.open(file, filesystem.READ | os.O_NONBLOCK, dir_fd=directory), "rb", buffering=0) as blob:
        return problem_with(blob, held.sha256, held.size_bytes) is None
