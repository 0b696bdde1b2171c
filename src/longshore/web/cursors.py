"""Cursors and event ids that reveal nothing about other tenants.

Jobs and events of all tenants share one sequence; from two numbers a client could count the events of others between
them. So a number leaves the service as 16 hexadecimal digits: a permutation of 64 bits (Feistel, four rounds of BLAKE2s)
under a key of the ledger, the tenant and the project. The same number has the same text in every process of a ledger. A plain
number is refused, except 0: by trying plain numbers, the number behind a cursor could be found again.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final

from longshore.domain.model import Scope
from longshore.ledger import Ledger
from longshore.ledger.operations.ledger_identity import ledger_id, make_ledger_id
from longshore.web.problems import Problem

PATTERN: Final = r"^(0|c[0-9a-f]{16})$"
_CURSOR = re.compile(PATTERN)
_ROUNDS: Final = 4
_LOW: Final = 0xFFFFFFFF
_MOST: Final = 1 << 62


class Cursors:
    """Encodes and decodes the cursors of one ledger."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.blake2s(key, person=b"cursors").digest()

    @classmethod
    def of(cls, ledger: Ledger) -> Cursors:
        """Return the cursors of a ledger; a read-only ledger without an id has different ones in every process."""
        known = ledger.read(ledger_id)
        if known is None and not ledger.frozen:
            known = ledger.write(make_ledger_id)
        return cls(known.encode() if known else secrets.token_bytes(32))

    def seal(self, scope: Scope, number: int | str) -> str:
        """Encode a number for a tenant."""
        key, value = self._scoped(scope), int(number)
        left, right = value >> 32, value & _LOW
        for step in range(_ROUNDS):
            left, right = right, left ^ _mix(key, step, right)
        return f"c{left:08x}{right:08x}"

    def read(self, scope: Scope, text: str) -> int:
        """Decode a cursor of this tenant; raise a problem for anything else."""
        if text == "0":
            return 0
        if not _CURSOR.match(text):
            raise Problem(422, "bad_cursor", "this is not a cursor of this list")
        key, left, right = self._scoped(scope), int(text[1:9], 16), int(text[9:], 16)
        for step in reversed(range(_ROUNDS)):
            left, right = right ^ _mix(key, step, left), left
        return min(left << 32 | right, _MOST - 1)

    def _scoped(self, scope: Scope) -> bytes:
        return hashlib.blake2s("\0".join(scope).encode(), key=self._key).digest()


def _mix(key: bytes, step: int, half: int) -> int:
    return int.from_bytes(
        hashlib.blake2s(half.to_bytes(4, "big") + bytes([step]), key=key, digest_size=4).digest(), "big"
    )
