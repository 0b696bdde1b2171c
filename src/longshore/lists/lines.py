"""Split bytes into numbered lines of limited length: a list may be a pipe, compressed, or have no line end at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final

from longshore.domain.model import JobRequest
from longshore.errors import BadInput
from longshore.lists.compression import BLOCK, LONGEST_MAGIC, compression_of, unpacked

MAX_LINE: Final = 16 << 20
HEAD: Final = 64 << 10
REJECTS: Final = b"# refused lines"  # how a file of `--rejects` begins
REJECTED: Final = b"# refused: "  # how it names the line below
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that could not become a job, with its number and the reason. Reading continues."""

    line: int
    message: str
    text: bytes | None = field(default=None, compare=False)  # the line as it came, with those that belong to it


@dataclass(slots=True)
class ListFacts:
    """What became known of a list while it was read."""

    format: str = ""
    heading: str = ""  # the first line of a CSV file


class NoDownload(BadLine):
    """A row of a Longshore manifest for a job that fetched nothing: skipped, not rejected."""


class WithoutFile(BadLine):
    """A work of a catalogue that has no file to fetch: counted, not rejected."""


class Blocks:
    """A stream's bytes in blocks, decompressed if necessary, with its head for format detection."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self._raw = _raw_blocks(stream)
        first = self._beginning()
        if (kind := compression_of(first)) is not None:
            self._raw = unpacked(kind, first, self._raw)
            first = next(self._raw, b"")
        self.head = self._grow_head(first).removeprefix(_BOM)

    def _beginning(self) -> bytes:
        """Read until the compression can be recognised: a pipe may give single bytes."""
        first = b""
        while len(first) < LONGEST_MAGIC and (more := next(self._raw, b"")):
            first += more
        return first

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
            yield number, BadLine(number, f"not UTF-8 at byte {error.start + 1}", line)


def with_text(made: JobRequest | BadLine, line: str) -> JobRequest | BadLine:
    """Return a bad line with its text, and everything else unchanged."""
    return replace(made, text=line.encode()) if type(made) is BadLine else made


def agreed(digests: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the digests of one file, each algorithm once; raise `BadInput` when two of one algorithm differ."""
    found: dict[str, tuple[str, str]] = {}
    for algorithm, value in digests:
        name = algorithm.lower().replace("-", "")
        before = found.setdefault(name, (algorithm, value))
        if before[1].strip().lower() != value.strip().lower():
            raise BadInput(f"two different {name} digests for one file")
    return list(found.values())
