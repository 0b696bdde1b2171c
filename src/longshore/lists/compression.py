"""Unpack compressed lists as they stream: gzip, bzip2, xz and Zstandard, several members in a row included.

Every step gives at most one block, whatever the input expands to, and the windows of xz and Zstandard are limited:
a small file that unpacks to a huge one needs time, not memory.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol

from longshore.errors import BadInput

BLOCK: Final = 256 << 10
MAX_WINDOW_LOG: Final = 27  # 128 MiB: what `zstd` itself accepts without --long
_XZ_MEMORY: Final = 256 << 20


class Machine(Protocol):
    """The interface of the decompressors of the standard library."""

    @property
    def eof(self) -> bool:
        """Return whether the end of a member was reached."""

    @property
    def needs_input(self) -> bool:
        """Return whether more input is needed before more output can come."""

    @property
    def unused_data(self) -> bytes:
        """Return the bytes after the end of a member."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return at most `max_length` bytes."""


class _Gzip:
    """A gzip member with the interface of the others."""

    def __init__(self) -> None:
        self._machine = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._machine.eof

    @property
    def needs_input(self) -> bool:
        return not self._machine.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._machine.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._machine.decompress(self._machine.unconsumed_tail + data, max_length)


def _zstd() -> Machine:
    module = _zstd_module()
    made: Machine = module.ZstdDecompressor(options={module.DecompressionParameter.window_log_max: MAX_WINDOW_LOG})
    return made


def _zstd_module() -> Any:
    for name in ("compression.zstd", "backports.zstd"):  # the first since Python 3.14
        try:
            return import_module(name)
        except ImportError:
            continue
    raise BadInput(
        "the list is compressed with Zstandard, which needs the package backports.zstd",
        hint="pip install 'longshore[zstd]', or unpack it on the way: zstd -dc FILE | longshore add -",
    )


class Compression(NamedTuple):
    """A format: its name, its first bytes and its decompressor."""

    name: str
    magic: bytes
    machine: Callable[[], Machine]


FORMATS: Final = (
    Compression("gzip", b"\x1f\x8b", _Gzip),
    Compression("bzip2", b"BZh", bz2.BZ2Decompressor),
    Compression("xz", b"\xfd7zXZ\0", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)),
    Compression("zstd", b"\x28\xb5\x2f\xfd", _zstd),
)
MAGICS: Final = tuple(one.magic for one in FORMATS)
LONGEST_MAGIC: Final = max(map(len, MAGICS))


def compression_of(first: bytes) -> Compression | None:
    """Return the compression that a file begins with; None if there is none."""
    return next((one for one in FORMATS if first.startswith(one.magic)), None)


def unpacked(kind: Compression, first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the unpacked bytes in blocks; raise `BadInput` with the place where the file is damaged or cut off."""
    machine, block, read = kind.machine(), first, len(first)
    while True:
        try:
            piece = machine.decompress(block, BLOCK)
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, MemoryError) as error:
            raise BadInput(f"the {kind.name} file is damaged before byte {read}: {error}") from None
        except Exception as error:
            if type(error).__name__ != "ZstdError":
                raise
            raise BadInput(f"the {kind.name} file is damaged before byte {read}: {error}") from None
        if piece:
            yield piece
        block = b""
        if machine.eof:
            block = machine.unused_data.lstrip(b"\0")  # members may be padded with zeros
            while not block:
                if not (more := next(rest, b"")):
                    return
                read, block = read + len(more), more.lstrip(b"\0")
            machine = kind.machine()
        elif machine.needs_input:
            block = next(rest, b"")
            read += len(block)
            if not block:
                raise BadInput(f"the {kind.name} file is cut off after byte {read}")
