"""Copy a store to another one of any backend. A copy is resumable: it skips blobs that the target already has.

Every blob is hashed while it is copied; a blob that does not match its name is reported and not copied. The pointers
change with the layout: the report lists old and new pointers, so that the ledger can be updated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from longshore.domain.model import Blob, Scope
from longshore.errors import LongshoreError, StoreError
from longshore.store.api import Staged, Store
from longshore.store.records import StoredBlob

BATCH: Final = 64
_READ_BYTES: Final = 1 << 20
_JOB: Final = "store-copy"


@dataclass(slots=True)
class CopyResult:
    """The result of a copy."""

    copied: int = 0
    held: int = 0
    bytes_copied: int = 0
    damaged: list[StoredBlob] = field(default_factory=list)
    moved: list[tuple[Scope, str, str]] = field(default_factory=list)  # scope, old pointer, new pointer, if different


def copy_store(
    source: Store, target: Store, on_blob: Callable[[StoredBlob, Blob], object] | None = None, *, verify: bool = True
) -> CopyResult:
    """Copy every blob that the target lacks; without `verify` a target blob of the right size is trusted unread."""
    report = CopyResult()
    for batch in _batches(source.walk()):
        missing = []
        for held in batch:
            there = target.stat(held.scope, held.sha256)
            if there is not None and _trusted(target, held, there, verify=verify):
                report.held += 1
                _note(report, held, there, on_blob)
            else:
                missing.append(held)
        _copy_batch(source, target, missing, report, on_blob)
    return report


def _trusted(target: Store, held: StoredBlob, there: Blob, *, verify: bool) -> bool:
    """Return whether the target's blob equals the source's; quarantine it if it is damaged."""
    if there.size_bytes != held.size_bytes:
        return False
    return not verify or target.prove(there, held.scope, "copy", unreadable_too=True)


def _batches(blobs: Iterator[StoredBlob]) -> Iterator[list[StoredBlob]]:
    while batch := list(islice(blobs, BATCH)):
        yield batch


def _copy_batch(
    source: Store,
    target: Store,
    missing: list[StoredBlob],
    report: CopyResult,
    on_blob: Callable[[StoredBlob, Blob], object] | None,
) -> None:
    items, origins = [], []
    for number, held in enumerate(missing):
        item = _read(source, target, held, number)
        if item is None:
            report.damaged.append(held)
        else:
            items.append(item)
            origins.append(held)
    if not items:
        return
    try:
        for error in target.stage(items):
            if error is not None:
                raise error
        for held, outcome in zip(origins, target.link(items), strict=True):
            if isinstance(outcome, StoreError):
                raise outcome
            report.copied += 1
            report.bytes_copied += held.size_bytes
            _note(report, held, outcome, on_blob)
    finally:
        target.clean(items)


def _read(source: Store, target: Store, held: StoredBlob, number: int) -> Staged | None:
    """Read a blob into a part of the target while hashing it; return None if the hash does not match."""
    job_id = f"{_JOB}-{number}"
    part = target.part(held.scope, job_id, 1)
    try:
        with source.open(held.scope, held.pointer) as file:
            while data := file.read(_READ_BYTES):
                part.write(data)
    except LongshoreError:
        part.discard()
        raise
    except OSError:
        part.discard()
        return None
    if part.sha256 != held.sha256 or part.size_bytes != held.size_bytes:
        part.discard()
        return None
    return Staged(held.scope, job_id, 1, held.sha256, held.size_bytes, "application/octet-stream", part)


def _note(
    report: CopyResult, held: StoredBlob, blob: Blob, on_blob: Callable[[StoredBlob, Blob], object] | None
) -> None:
    if blob.pointer != held.pointer:
        report.moved.append((held.scope, held.pointer, blob.pointer))
    if on_blob is not None:
        on_blob(held, blob)
