"""Digests that servers declare (RFC 9530, and the older Digest) and that requests expect.

Repr-Digest and Digest are about the whole object, so what any answer of a transfer declares (the first one, a piece, a
resume) must hold for the completed bytes, and two that contradict each other can never both hold. Content-Digest is about
one message: of an answer that brings the whole object `parse_head` makes it a Repr-Digest, of a part `transfer` compares it
with the bytes of that message.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Final

from longshore.domain.model import Expect
from longshore.errors import Reasoned

OF_THE_OBJECT: Final = ("digest", "repr-digest")
OF_THE_MESSAGE: Final = "content-digest"
KEPT_FIELDS: Final = ("content-type", "content-disposition", "repr-digest", "digest", "vary", "date")
_STRUCTURED = re.compile(r"\s*([a-z0-9-]+)\s*=\s*:([A-Za-z0-9+/=]*):\s*(?:;[^,]*)?\Z", re.IGNORECASE)
_OLD_DIGEST = re.compile(r"\s*([A-Za-z0-9-]+)=([A-Za-z0-9+/=]+)\s*\Z")
_NAMES: Final = {"sha-256": ("sha256", 32), "sha-512": ("sha512", 64)}


def kept_fields(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that have to be as durable as the bytes: the verdict after a crash reads the same as before it."""
    return {name: headers[name] for name in KEPT_FIELDS if name in headers}


def with_digests(fields: Mapping[str, str], further: Mapping[str, str] | None) -> dict[str, str]:
    """Return the fields with every digest of the object that `further` declares as well."""
    found = dict(fields)
    for name in OF_THE_OBJECT:
        if further and name in further and further[name] not in found.get(name, ""):
            found[name] = f"{found[name]}, {further[name]}" if name in found else further[name]
    return found


def declared_digests(headers: Mapping[str, str]) -> dict[str, str]:
    """Read the digests of the object as algorithm → hex. Unknown and malformed ones are left out."""
    return dict(_object_digests(headers))


def message_digests(headers: Mapping[str, str]) -> dict[str, str]:
    """Read Content-Digest as algorithm → hex."""
    return dict(_read(headers[OF_THE_MESSAGE], _STRUCTURED)) if OF_THE_MESSAGE in headers else {}


def _object_digests(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    patterns = zip(OF_THE_OBJECT, (_OLD_DIGEST, _STRUCTURED), strict=True)
    return [pair for name, pattern in patterns if name in headers for pair in _read(headers[name], pattern)]


def _read(value: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    for piece in value.split(","):
        match = pattern.match(piece)
        known = _NAMES.get(match[1].lower()) if match else None
        if match is None or known is None:
            continue
        try:
            raw = base64.b64decode(match[2], validate=True)
        except (binascii.Error, ValueError):
            continue
        if len(raw) == known[1]:
            yield known[0], raw.hex()


def has_digests(expect: Expect, headers: Mapping[str, str]) -> bool:
    """Return whether a digest is known that the bytes must have."""
    return bool(expect.sha256 or expect.digests or "repr-digest" in headers or "digest" in headers)


def algorithms(expect: Expect, headers: Mapping[str, str]) -> frozenset[str]:
    """Return the digests that must be computed beside sha256."""
    wanted = {name for name, _ in expect.digests} | set(declared_digests(headers))
    return frozenset(wanted - {"sha256"})


def digest_fault(expect: Expect, headers: Mapping[str, str], computed: Mapping[str, str]) -> Reasoned | None:
    """Compare the computed digests (sha256 among them) with each one that the job expects or the server declares."""
    wanted = [*expect.digests, *([("sha256", expect.sha256)] if expect.sha256 else [])]
    for who, pairs in (("expected", wanted), ("declared by the server", _object_digests(headers))):
        for name, value in pairs:
            if name in computed and computed[name] != value.lower():
                return Reasoned("digest_mismatch", f"{name} is {computed[name]}, {who} was {value.lower()}")
    return None
