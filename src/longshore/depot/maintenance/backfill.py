"""Adopt an earlier ledger with its files: each is hashed, published like a download and registered under the v1 key."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from longshore.depot.uploads import open_plain
from longshore.domain.model import Blob, Lease, Scope
from longshore.domain.transfer.content_checks import JUDGE_BYTES, content_type
from longshore.errors import BadInput, StoreError
from longshore.ledger.maintenance.import_earlier_ledger import Backfilled, backfill, preview
from longshore.store import Staged
from longshore.worker.publish_protocol import publish_now

if TYPE_CHECKING:
    from longshore.ledger import Ledger
    from longshore.store import Store

_CHUNK: Final = 1 << 20


def adopt_earlier_ledger(
    ledger: Ledger, store: Store, scope: Scope, source: Path, *, root: Path, owner: str, dry_run: bool = False
) -> Backfilled:
    """Make a job of every row, and complete those whose file has the bytes that the row names.

    With `dry_run`, only count what would happen; files are hashed, nothing is written.
    """
    if dry_run:
        return preview(ledger, source, scope, _has_bytes, root=root)

    def take(lease: Lease, path: Path, sha256: str) -> Blob:
        return _taken(ledger, store, lease, path, sha256)

    return backfill(ledger, source, scope, take, root=root, owner=owner)


def _taken(ledger: Ledger, store: Store, lease: Lease, path: Path, sha256: str) -> Blob:
    """Copy a file into a part, compare its hash and publish it; raise if it has other bytes."""
    scope, job_id, epoch = lease.scope, lease.job_id, lease.epoch
    with open_plain(path) as file:
        descriptor = file.fileno()
        room = store.reserve_for_part(scope, job_id, epoch, os.fstat(descriptor).st_size)
        part = store.part(scope, job_id, epoch)
        part.reservation = room
        try:
            part.take_from(descriptor)
            if part.sha256 != sha256:
                raise StoreError(f"{path} does not have the SHA-256 that the earlier ledger names")
            kind = content_type(part.read_back(0, min(part.size_bytes, JUDGE_BYTES)), None)
            staged = Staged(scope, job_id, epoch, sha256, part.size_bytes, kind, part)
            blob = publish_now(ledger, store, lease, staged)
            store.clean([staged])
            return blob
        except BaseException:
            part.discard()
            store.drop_part(part.facts)
            raise


def _has_bytes(path: Path, sha256: str) -> bool:
    """Return whether a file has these bytes."""
    digest = hashlib.sha256()
    try:
        with open_plain(path) as file:
            while piece := file.read(_CHUNK):
                digest.update(piece)
    except (BadInput, OSError):
        return False
    return digest.hexdigest() == sha256
