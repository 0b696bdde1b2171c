"""Names in a store: tenants, shards, blobs, pointers. Pure functions; a pointer is opaque to all other modules.

Each byte of a name that is not in the plain alphabet is escaped as `=XX`, so that two tenants never share a directory,
even on a case-insensitive file system. A very long name is encoded as `==` and its hash.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from longshore.errors import NotFound, StoreError

if TYPE_CHECKING:
    from longshore.domain.scope import Scope

LONGEST: Final = 200
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_EXT = re.compile(r"(\.[a-z0-9]{1,8}){0,2}\Z")
_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-.")

# Magic bytes. One hash has one name, so entries are only added, never changed.
_MAGIC: Final = (
    (b"%PDF-", ".pdf"),
    (b"PK\x03\x04", ".zip"),
    (b"\x1f\x8b", ".gz"),
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"GIF8", ".gif"),
    (b"BZh", ".bz2"),
    (b"\xfd7zXZ\x00", ".xz"),
    (b"\x28\xb5\x2f\xfd", ".zst"),
    (b"7z\xbc\xaf\x27\x1c", ".7z"),
    (b"PAR1", ".parquet"),
    (b"ID3", ".mp3"),
    (b"fLaC", ".flac"),
    (b"OggS", ".ogg"),
    (b"\x1aE\xdf\xa3", ".mkv"),
    (b"%!PS", ".ps"),
    (b"SQLite format 3\x00", ".sqlite"),
    (b"<?xml", ".xml"),
    (b"<!DOCTYPE html", ".html"),
    (b"<html", ".html"),
)
HEAD_BYTES: Final = 1024  # so many because the entries of a ZIP say what it is
_ZIP: Final = ".zip"
_IN_ZIP: Final = (
    (b"mimetypeapplication/epub+zip", ".epub"),
    (b"mimetypeapplication/vnd.oasis.opendocument.text", ".odt"),
    (b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet", ".ods"),
    (b"mimetypeapplication/vnd.oasis.opendocument.presentation", ".odp"),
    (b"META-INF/container.xml", ".epub"),
    (b"word/", ".docx"),
    (b"xl/", ".xlsx"),
    (b"ppt/", ".pptx"),
    (b"META-INF/MANIFEST.MF", ".jar"),
)
EXTENSIONS: Final = ("", *dict.fromkeys(ext for _, ext in (*_MAGIC, *_IN_ZIP)))
FORMER: Final = {ext: _ZIP for _, ext in _IN_ZIP}  # the names of these types before ZIP files were told apart


def extension(head: bytes) -> str:
    """Derive the extension from the first bytes, and from nothing else."""
    for magic, ext in _MAGIC:
        if head.startswith(magic):
            return _zip_extension(head[:HEAD_BYTES]) if ext == _ZIP else ext
    return ""


def _zip_extension(head: bytes) -> str:
    return next((ext for needle, ext in _IN_ZIP if needle in head), _ZIP)


@lru_cache(4096)
def encode(name: str) -> str:
    """Encode a tenant, project or job as a directory name: injective, safe, at most 200 characters."""
    if _PLAIN.match(name):
        return name
    raw = name.encode()
    encoded = "".join(chr(b) if b in _SAFE and (i or b != 0x2E) else f"={b:02x}" for i, b in enumerate(raw))
    if encoded[:1] in ("-", "_"):
        encoded = f"={raw[0]:02x}{encoded[1:]}"
    return encoded if encoded and len(encoded) <= LONGEST else "==" + hashlib.sha256(raw).hexdigest()


def is_hashed(encoded: str) -> bool:
    """Return whether an encoded name is a hash, which cannot be decoded."""
    return encoded.startswith("==")


def decode(encoded: str) -> str:
    """Decode a name; return a hashed one unchanged."""
    if "=" not in encoded or is_hashed(encoded):
        return encoded
    out, rest = bytearray(), encoded
    while rest:
        if rest[0] == "=":
            out.append(int(rest[1:3], 16))
            rest = rest[3:]
        else:
            out.append(ord(rest[0]))
            rest = rest[1:]
    return out.decode()


def check_sha256(sha256: str) -> str:
    """Return the argument if it is a SHA-256; raise `StoreError` otherwise."""
    if not _SHA256.match(sha256):
        raise StoreError(f"not a SHA-256: {sha256[:80]!r}")
    return sha256


def is_blob(file: str) -> bool:
    """Return whether a file's name can be a blob's."""
    return bool(_SHA256.match(file[:64]) and _EXT.match(file[64:]))


def check_extension(ext: str) -> str:
    """Return the argument if it is a valid extension; raise `StoreError` otherwise."""
    if not _EXT.match(ext):
        raise StoreError(f"not an extension: {ext[:40]!r}")
    return ext


class Place(NamedTuple):
    """The components of a blob's path."""

    tenant: str  # encoded
    project: str  # encoded
    shard: str
    file: str

    @property
    def sha256(self) -> str:
        """The hash that the file is named by."""
        return self.file[:64]

    @property
    def pointer(self) -> str:
        """The path as an opaque string."""
        return "/".join(part for part in self if part)


def prefix(scope: Scope) -> str:
    """Return the common prefix of a scope's pointers."""
    return f"{encode(scope.tenant_id)}/{encode(scope.project_id)}/"


def place(scope: Scope, sha256: str, ext: str, width: int) -> Place:
    """Return where a blob belongs."""
    return Place(encode(scope.tenant_id), encode(scope.project_id), sha256[:width], sha256 + ext)


def shard_of(pointer: str) -> str:
    """Return the shard of a blob; empty if the store does not use shards."""
    pieces = pointer.split("/")
    return pieces[2] if len(pieces) == 4 else ""


def parse(scope: Scope, pointer: str) -> Place:
    """Parse a pointer; raise `NotFound` if it is malformed or belongs to another scope."""
    pieces = pointer.split("/")
    if len(pieces) == 3:
        pieces.insert(2, "")
    if len(pieces) != 4:
        raise NotFound("no such blob")
    found = Place(*pieces)
    sha256, ext = found.file[:64], found.file[64:]
    ours = found.tenant == encode(scope.tenant_id) and found.project == encode(scope.project_id)
    if not (ours and _SHA256.match(sha256) and _EXT.match(ext) and sha256.startswith(found.shard)):
        raise NotFound("no such blob")
    return found
