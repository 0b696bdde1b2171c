"""Split bytes into numbered lines of limited length: a list may be a pipe, a gzip file, or have no line end at all."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from longshore.errors import BadInput

MAX_LINE: Final = 16 << 20
BLOCK: Final = 256 << 10
HEAD: Final = 64 << 10
GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that could not become a job, with its number and the reason. Reading continues."""

    line: int
    message: str


class NoDownload(BadLine):
    """A row of a Longshore manifest for a job that fetched nothing: skipped, not rejected."""


class Blocks:
    """A stream's bytes in blocks, decompressed if it is gzip, with its head for format detection."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self._raw = _raw_blocks(stream)
        first = next(self._raw, b"")
        if first.startswith(GZIP):
            self._raw = _unpacked(first, self._raw)
            first = next(self._raw, b"")
        self.head = self._grow_head(first).removeprefix(_BOM)

    def _grow_head(self, head: bytes) -> bytes:
        """Read until the first line that is neither empty nor a comment is complete."""
        while len(head) < HEAD and not _has_a_line(head):
            more = next(self._raw, b"")
            if not more:
                break
            head += more
        return head

    def __iter__(self) -> Iterator[bytes]:
        yield self.head
        yield from self._raw


def _has_a_line(head: bytes) -> bool:
    *whole, _ = head.split(b"\n")
    return any((line := one.strip()) and not line.startswith(b"#") for one in whole)


def _raw_blocks(stream: BinaryIO) -> Iterator[bytes]:
    # read1 returns the bytes that a pipe has now, so that work begins before the writer ends.
    read = getattr(stream, "read1", stream.read)
    while block := read(BLOCK):
        yield block


def _unpacked(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    machine = zlib.decompressobj(wbits=31)
    block, read = first, len(first)
    while block:
        try:
            piece = machine.decompress(block, BLOCK)
        except zlib.error as error:
            raise BadInput(f"the gzip file is damaged before byte {read}: {error}") from None
        if piece:
            yield piece
        block = machine.unconsumed_tail
        if machine.eof:
            block, machine = machine.unused_data.lstrip(b"\0"), zlib.decompressobj(wbits=31)
            if not block:
                block = next(rest, b"")
                read += len(block)
        elif not block:
            block = next(rest, b"")
            read += len(block)
            if not block:
                raise BadInput(f"the gzip file is cut off after byte {read}")


def split_lines(blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes | BadLine]]:
    """Split blocks into numbered lines without line ends; yield a line beyond the limit as `BadLine`."""
    number, rest, skipping = 1, b"", False
    for block in blocks:
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        for line in lines:
            if not skipping:
                yield number, line.removesuffix(b"\r")
            number, skipping = number + 1, False
        if len(rest) > MAX_LINE:
            if not skipping:
                yield number, BadLine(number, f"longer than {MAX_LINE >> 20} MiB")
            rest, skipping = b"", True
    if rest and not skipping:
        yield number, rest.removesuffix(b"\r")


def text_lines(blocks: Iterator[bytes]) -> Iterator[tuple[int, str | BadLine]]:
    """Decode lines; yield a line that is not UTF-8 as `BadLine`."""
    for number, line in split_lines(blocks):
        if isinstance(line, BadLine):
            yield number, line
            continue
        try:
            yield number, line.decode()
        except UnicodeDecodeError as error:
            yield number, BadLine(number, f"not UTF-8 at byte {error.start + 1}")


def agreed(digests: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the digests of one file, each algorithm once; raise `BadInput` when two of one algorithm differ."""
    found: dict[str, tuple[str, str]] = {}
    for algorithm, value in digests:
        name = algorithm.lower().replace("-", "")
        before = found.setdefault(name, (algorithm, value))
        if before[1].strip().lower() != value.strip().lower():
            raise BadInput(f"two different {name} digests for one file")
    return list(found.values())
