"""Decode a body that a server encoded although identity was asked for (`transfer.decode = "store_decoded"`).

The stored bytes are the decoded ones. Of the encoded ones the SHA-256 and the size are recorded, and digests that the server
declares are compared with them, because such digests are about what was sent. The decoded body is whole only if the coding's
own end and checksum were reached. Nothing else that the head says about bytes holds for it: the sink gets a head without
length and validators, so such a body is never resumed, split into pieces or revalidated.

gzip and zlib expand up to 1032 times. Above `FREE_BYTES` a body that grew by more than `MOST_TIMES` ends as `too_large`.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from longshore.domain.model import Expect, Validators
from longshore.domain.transfer.declared_digests import OF_THE_MESSAGE, OF_THE_OBJECT, algorithms, digest_fault
from longshore.domain.transfer.response_head import Decoding, Head
from longshore.errors import Reasoned

STORE_DECODED: Final = "store_decoded"
FREE_BYTES: Final = 8 << 20
MOST_TIMES: Final = 200
_STEP: Final = 1 << 20  # bytes that are decoded at once
_OF_ENCODED: Final = frozenset(
    {"content-length", "content-encoding", "etag", "last-modified", *OF_THE_OBJECT, OF_THE_MESSAGE}
)
_WINDOW: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # zlib's wbits: with gzip's or with zlib's own header


def check_coding(head: Head, host: str, policy: str) -> None:
    """Raise unless an encoded body is to be decoded and can be: one known coding, and the whole object."""
    coding = str(head.encoding)[:40]
    if policy != STORE_DECODED or coding not in _WINDOW:
        raise Reasoned("content_encoding", f"{host}: the body is encoded ({coding})")
    if head.status != 200:
        raise Reasoned("bad_range", f"{host}: a part of an encoded body ({coding})")


class Decoder:
    """Decodes one body on its way to the sink."""

    def __init__(self, head: Head, host: str, write: Callable[[bytes], bool], most: int) -> None:
        assert head.encoding is not None
        self._host, self._write, self._most = host, write, most
        self._declared = head.headers
        self._window = _WINDOW[head.encoding]
        self._zlib = zlib.decompressobj(self._window)
        self._hashes = {name: hashlib.new(name) for name in {"sha256", *algorithms(Expect(), head.headers)}}
        self._decoded = 0
        self._decoding = Decoding(head.encoding)
        headers = {name: value for name, value in head.headers.items() if name not in _OF_ENCODED}
        self.head = replace(
            head, headers=headers, length=None, validators=Validators(), delimited=True, decoding=self._decoding
        )

    def write(self, data: bytes) -> bool:
        """Decode received bytes and hand them on; False pauses the transfer."""
        self._decoding.encoded_bytes += len(data)
        for one in self._hashes.values():
            one.update(data)
        goes_on = True
        while data:
            if self._zlib.eof:  # gzip may have several members
                self._zlib = zlib.decompressobj(self._window)
            goes_on = self._step(data) and goes_on
            data = self._zlib.unconsumed_tail or self._zlib.unused_data
        return goes_on

    def _step(self, data: bytes) -> bool:
        try:
            piece = self._zlib.decompress(data, _STEP)
        except zlib.error:
            raise self._fault("content_encoding", f"the body is not valid {self._decoding.coding}") from None
        self._decoded += len(piece)
        if self._decoded > self._most:
            raise self._fault("too_large", f"the decoded body is larger than {self._most} bytes")
        if self._decoded > max(FREE_BYTES, MOST_TIMES * self._decoding.encoded_bytes):
            raise self._fault("too_large", f"the encoded body grows more than {MOST_TIMES} times")
        return not piece or self._write(piece)

    def finish(self) -> None:
        """Raise unless the body is whole and has the digests that were declared."""
        self._decoding.encoded_sha256 = self._hashes["sha256"].hexdigest()
        if self._decoding.encoded_bytes and not self._zlib.eof:
            raise self._fault("truncated", f"the {self._decoding.coding} body ends before its end")
        computed = {name: one.hexdigest() for name, one in self._hashes.items()}
        if (fault := digest_fault(Expect(), self._declared, computed)) is not None:
            raise fault

    def _fault(self, reason: str, message: str) -> Reasoned:
        return Reasoned(reason, f"{self._host}: {message}")
