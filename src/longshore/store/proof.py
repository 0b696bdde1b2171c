"""Proof that a stored blob has the bytes that its name promises.

A name under the store's directories says which bytes it holds; a disk may say otherwise years later. Size, times and
inode stay the same when a bit flips, so nothing short of reading the blob proves it. Every place that trusts a blob
instead of bytes at hand (dedupe, adoption after a crash, uploads, copies) or hands its bytes out (placing, exports,
streams) goes through this module: `problem_with` for a verdict, `proven_pieces` for bytes on their way.

What is read may come from the page cache. A blob that is sound in memory and damaged on the device is seen when the
kernel reads it again, not before (ADR 15).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO, Final

from longshore.errors import BlobDamaged
from longshore.store.records import Problem

PIECE_BYTES: Final = 1 << 20


def problem_with(file: BinaryIO, sha256: str, size_bytes: int) -> Problem | None:
    """Read an open blob to its end and compare size and hash; None if it is sound."""
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
