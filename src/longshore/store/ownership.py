"""Which ledger a store belongs to.

The reconciler moves blobs that no row names to quarantine, and `gc` removes them. Two ledgers on one store would do
that to each other's blobs. So a store has one owner: the id of the ledger that opened it first, in a file or object
beside the blobs. It is created exclusively, so that one of two ledgers that create a store at the same time is
refused. A store without an owner (of an older version) is claimed by the first ledger that opens it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import uuid
from typing import TYPE_CHECKING, Final

from longshore.errors import ForeignStore, StoreError
from longshore.store.durability import filesystem

if TYPE_CHECKING:
    from longshore.store.remote.object_store import Objects

OWNER: Final = ".ledger.json"
_CANNOT_WRITE: Final = frozenset({errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT})


def claim_directory(root: int, place: str, ledger_id: str) -> None:
    """Claim a directory for a ledger unless its disk is full or read-only; raise `ForeignStore` if it has another owner."""
    found = read_owner(root, place)
    if found is None and ledger_id:
        try:
            _write(root, ledger_id)
        except OSError as error:
            if error.errno in _CANNOT_WRITE:
                return
            raise
        found = read_owner(root, place)
    check_owner(found, ledger_id, place)


def claim_objects(objects: Objects, ledger_id: str) -> None:
    """Claim an object store for a ledger; raise `ForeignStore` if another one has it."""
    place = f"the {objects.backend} store"
    size = objects.size(OWNER)
    if size is None:
        if not ledger_id:
            return
        objects.put(OWNER, _body(ledger_id), "application/json")
        size = objects.size(OWNER) or 0
    check_owner(_id_in(objects.read(OWNER, 0, size) if size else b"", place), ledger_id, place)


def check_owner(found: str | None, ledger_id: str, place: str) -> None:
    """Refuse a store whose owner is another ledger."""
    if found is not None and found != ledger_id:
        raise ForeignStore(f"{place} belongs to another ledger ({found[:40]}); this one is {ledger_id or 'new'}")


def read_owner(root: int, place: str) -> str | None:
    """Return the id of the ledger that an open directory belongs to; None if it was never claimed."""
    try:
        with filesystem.open_regular(OWNER, root) as file:
            return _id_in(file.read(4096), place)
    except FileNotFoundError:
        return None


def _id_in(raw: bytes, place: str) -> str:
    with contextlib.suppress(ValueError):
        match json.loads(raw):
            case {"ledger": str(ledger_id)}:
                return ledger_id
    raise StoreError(
        f"{OWNER} of {place} is damaged", hint="if no other ledger uses this store, remove it: it is written again"
    )


def _body(ledger_id: str) -> bytes:
    return json.dumps({"ledger": ledger_id}).encode()


def _write(root: int, ledger_id: str) -> None:
    """Write a temporary file, then link it to the owner file's name unless that exists."""
    name = f"{OWNER}.{uuid.uuid4().hex}"
    descriptor = os.open(name, filesystem.CREATE, 0o600, dir_fd=root)
    try:
        filesystem.write_all(descriptor, _body(ledger_id))
        os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            filesystem.rename_new(name, OWNER, root)
        os.fsync(root)
    finally:
        os.close(descriptor)
        filesystem.unlink(name, root)
