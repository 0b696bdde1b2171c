"""Verify that a stored blob matches its hash.

A blob's name is the hash of its bytes, but a disk may corrupt them years later. Size, times and inode do not change
when a bit flips, so only reading the blob can verify it. All code that trusts a stored blob instead of bytes in memory
(dedupe, adoption after a crash, uploads, copies) or returns its bytes (placing, exports, streams) uses this module:
`problem_with` to check a blob, `proven_pieces` to stream one.

The bytes may come from the page cache. A blob that is intact in memory and damaged on the device is detected only when
the kernel reads it from the device again (ADR 15).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO, Final

from longshore.errors import BlobDamaged
from longshore.store.records import Problem

PIECE_BYTES: Final = 1 << 20


def problem_with(file: BinaryIO, sha256: str, size_bytes: int) -> Problem | None:
    """Read an open blob to its end and compare size and hash; return None if it is intact."""
    digest, size = hashlib.sha256(), 0
    buffer = bytearray(min(PIECE_BYTES, size_bytes + 1))
    view = memoryview(buffer)
    while count := file.readinto(buffer):  # type: ignore[attr-defined]
        digest.update(view[:count])
        size += count
        if size > size_bytes:
            break
    if size != size_bytes:
        return Problem.WRONG_SIZE
    return None if digest.hexdigest() == sha256 else Problem.WRONG_HASH


def proven_pieces(file: BinaryIO, sha256: str) -> Iterator[bytes]:
    """Yield an open blob piece by piece; raise `BlobDamaged` before the last piece unless the whole has the hash."""
    digest, held = hashlib.sha256(), b""
    while piece := file.read(PIECE_BYTES):
        digest.update(piece)
        if held:
            yield held
        held = piece
    if digest.hexdigest() != sha256:
        raise BlobDamaged(sha256)
    if held:
        yield held
