"""Digests beside SHA-256, where one was declared or expected: rare, so the bytes are read once more for them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from longshore.domain.model import Scope
from longshore.store import Part, Store

READ_BYTES: Final = 1 << 20


def digests_of(body: bytes | Part, algorithms: Collection[str]) -> dict[str, str]:
    """Compute digests of a body, in a thread that may block."""
    return _computed((body,) if isinstance(body, bytes) else _pieces(body), algorithms)


def stored_digests(store: Store, scope: Scope, pointer: str, algorithms: Collection[str]) -> dict[str, str]:
    """Compute digests of a stored blob, in a thread that may block."""
    with store.open(scope, pointer) as file:
        return _computed(iter(lambda: file.read(READ_BYTES), b""), algorithms)


def _pieces(part: Part) -> Iterator[bytes]:
    offset = 0
    while piece := os.pread(part.fd, READ_BYTES, offset):
        offset += len(piece)
        yield piece


def _computed(pieces: Iterable[bytes], algorithms: Collection[str]) -> dict[str, str]:
    hashes = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}
    for piece in pieces:
        for digest in hashes.values():
            digest.update(piece)
    return {name: digest.hexdigest() for name, digest in hashes.items()}
