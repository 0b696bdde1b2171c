"""Who a torrent is: its info hashes, computed before anything is added anywhere."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final
from urllib.parse import parse_qsl

from longshore.domain.torrents.model import Identity
from longshore.errors import BadInput, Reasoned
from longshore.worker.kinds.torrent import bencode

MAX_MAGNET: Final = 65_536
_HEX40 = re.compile(r"urn:btih:([0-9a-f]{40})", re.IGNORECASE)
_BASE32 = re.compile(r"urn:btih:([a-z2-7]{32})", re.IGNORECASE)
_MULTIHASH = re.compile(r"urn:btmh:1220([0-9a-f]{64})", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def from_metainfo(data: bytes) -> Identity:
    """Identify a .torrent file by hashing its `info` exactly as it stands there."""
    top, end = bencode.members(data, 0)
    if data[end:].strip():
        raise Reasoned("bad_torrent", f"not a torrent: something follows its end at byte {end}")
    if b"info" not in top:
        raise Reasoned("bad_torrent", "not a torrent: it has no info")
    span = top[b"info"]
    info, _ = bencode.members(data, span.start)
    raw = data[span.start : span.end]
    second = b"meta version" in info and bencode.integer(data, info[b"meta version"]) == 2 and b"file tree" in info
    identity = Identity(
        v1=hashlib.sha1(raw, usedforsecurity=False).hexdigest() if b"pieces" in info else None,
        v2=hashlib.sha256(raw).hexdigest() if second else None,
    )
    if not identity.ids:
        raise Reasoned("bad_torrent", "not a torrent: its info has neither pieces nor a file tree")
    return identity


def from_magnet(uri: str) -> Identity:
    """Identify a magnet link by its btih and btmh; two different ones of a kind are refused."""
    if len(uri) > MAX_MAGNET or _CONTROL.search(uri):
        raise BadInput("the magnet link is too long or has control characters")
    first: set[str] = set()
    second: set[str] = set()
    for name, value in _fields(uri):
        if name != "xt" and not name.startswith("xt."):
            continue
        if found := _HEX40.fullmatch(value):
            first.add(found[1].lower())
        elif found := _BASE32.fullmatch(value):
            first.add(base64.b32decode(found[1].upper()).hex())
        elif found := _MULTIHASH.fullmatch(value):
            second.add(found[1].lower())
    if len(first) > 1 or len(second) > 1:
        raise BadInput("the magnet link names two different torrents")
    identity = Identity(v1=next(iter(first), None), v2=next(iter(second), None))
    if not identity.ids:
        raise BadInput("the magnet link has no usable btih or btmh")
    return identity


def trackerless(uri: str) -> bool:
    """Return whether a magnet link names no tracker and no peer: then only the DHT can find anything."""
    return not any(name in ("tr", "x.pe", "ws") or name.startswith("tr.") for name, _ in _fields(uri))


def _fields(uri: str) -> list[tuple[str, str]]:
    scheme, _, query = uri.partition("?")
    if scheme.lower() != "magnet:":
        raise BadInput("not a magnet link")
    try:
        return parse_qsl(query, keep_blank_values=True, max_num_fields=1000)
    except ValueError:
        raise BadInput("the magnet link has too many fields") from None
