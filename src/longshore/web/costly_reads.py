"""Reads whose cost grows with the ledger: counts and searches.

They have threads of their own, so that they do not delay authentication, pages and statistics; and one at a time per token,
so that one token's clients do not delay the searches of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from longshore.ledger import Ledger
from longshore.web.problems import Problem

T = TypeVar("T")
QUEUED_MOST: Final = 16  # of one token, the running one included


@dataclass(slots=True)
class _Queue:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0


class CostlyReads:
    """Queues the costly reads of each token."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queues: dict[str, _Queue] = {}

    async def run(self, key: str, verb: Callable[..., T], *args: Any, **kw: Any) -> T:
        """Run a verb that only reads, after the earlier ones of the same token."""
        queue = self._queues.setdefault(key, _Queue())
        if queue.length >= QUEUED_MOST:
            raise Problem(
                429, "too_many_requests", "too many searches with this token at a time", headers={"Retry-After": "5"}
            )
        queue.length += 1
        try:
            async with queue.turn:
                return await self._ledger.read_costly_async(verb, *args, **kw)
        finally:
            queue.length -= 1
            if not queue.length:
                del self._queues[key]
