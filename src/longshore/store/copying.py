"""Copying a store to another, of any backend: resumable, because what is there already is known by its hash.

Every blob is hashed on the way; one that is not what its name says is reported and not copied. The pointers change
with the layout: the report gives old and new, so that the ledger can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from longshore.domain.model import Blob, Scope
from longshore.errors import LongshoreError, StoreError
from longshore.store.contract import Staged, Store
from longshore.store.records import Held

BATCH: Final = 64
_READ_BYTES: Final = 1 << 20
_JOB: Final = "store-copy"


@dataclass(slots=True)
class Copied:
    """What a copy came to."""

    copied: int = 0
    held: int = 0
    bytes_copied: int = 0
    damaged: list[Held] = field(default_factory=list)
    moved: list[tuple[Scope, str, str]] = field(default_factory=list)  # scope, old pointer, new pointer, if different


def copy_store(
    source: Store, target: Store, on_blob: Callable[[Held, Blob], object] | None = None, *, verify: bool = True
) -> Copied:
    """Copy every blob that the target does not hold; without `verify` a blob of the right size counts as held unread."""
    report = Copied()
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


def _trusted(target: Store, held: Held, there: Blob, *, verify: bool) -> bool:
    """Tell whether the target's blob can stand for the source's; one that is proven not to is quarantined."""
    if there.size_bytes != held.size_bytes:
        return False
    return not verify or target.prove(there, held.scope, "copy", unreadable_too=True)


def _batches(blobs: Iterator[Held]) -> Iterator[list[Held]]:
    while batch := list(islice(blobs, BATCH)):
        yield batch


def _copy_batch(
    source: Store, target: Store, missing: list[Held], report: Copied, on_blob: Callable[[Held, Blob], object] | None
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


def _read(source: Store, target: Store, held: Held, number: int) -> Staged | None:
    """Read a blob into a part of the target, hashing; None if it is not what its name says."""
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


def _note(report: Copied, held: Held, blob: Blob, on_blob: Callable[[Held, Blob], object] | None) -> None:
    if blob.pointer != held.pointer:
        report.moved.append((held.scope, held.pointer, blob.pointer))
    if on_blob is not None:
        on_blob(held, blob)
