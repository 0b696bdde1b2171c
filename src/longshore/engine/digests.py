"""Digests beside SHA-256, for those who were given one: rare, so the bytes are read for it once more."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from typing import Final

from longshore.store import Part

READ_BYTES: Final = 1 << 20


def digests_of(body: bytes | Part, algorithms: Collection[str]) -> dict[str, str]:
    """Compute digests of a body, in a thread that may block."""
    hashes = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}
    if isinstance(body, bytes):
        for digest in hashes.values():
            digest.update(body)
    else:
        offset = 0
        while piece := os.pread(body.fd, READ_BYTES, offset):
            offset += len(piece)
            for digest in hashes.values():
                digest.update(piece)
    return {name: digest.hexdigest() for name, digest in hashes.items()}
