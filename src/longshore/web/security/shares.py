"""Shares for everyone: how much of one kind a token may have at the same time, counted when it is admitted.

A token counts together with the sessions that were opened with it, or each sign-in would multiply its shares.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from longshore.web.problems import Problem

if TYPE_CHECKING:
    from longshore.web.security.auth import Caller


class Shares:
    """How many of one kind are open, by key."""

    def __init__(self, limit: int, what: str) -> None:
        self.limit, self.what = limit, what
        self._open: Counter[str] = Counter()

    def admit(self, caller: Caller) -> None:
        """Count one until the caller's request ends; raise a 429 if the token has its share already."""
        key = caller.token.root_id
        if self._open[key] >= self.limit:
            raise Problem(
                429, "too_many_requests", f"too many {self.what} with this token", headers={"Retry-After": "5"}
            )
        self._open[key] += 1
        caller.held.callback(partial(self._release, key))

    def _release(self, key: str) -> None:
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]

    def total(self) -> int:
        """Return how many are open."""
        return self._open.total()
