"""Limit concurrent requests when descriptors run out: halve the limit each time, raise it as requests succeed."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from typing import Final

NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})


class DescriptorGate:
    """A gate without a limit until descriptors run out; then half of the running requests, and one more per round."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit: float | None = None  # None: open
        self._inside = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> float | None:
        """The limit of concurrent requests; None when the gate is open."""
        return self._limit

    async def enter(self) -> None:
        """Wait for a slot. The caller must call `leave` after every `enter`."""
        if self._limit is not None and self._inside >= self._limit:
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self._inside -= 1
                    self._admit()
                raise
            return
        self._inside += 1

    def leave(self, *, starved: bool = False, well: bool = False) -> None:
        """Release the slot. `starved`: a descriptor was missing; `well`: the request succeeded."""
        if starved:
            self._limit = max(1.0, min(self._inside, self._limit or self._inside) / 2)
        elif well and self._limit is not None:
            self._limit += 1 / self._limit
            if self._limit >= self._most:
                self._limit = None
        self._inside -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and (self._limit is None or self._inside < self._limit):
            place = self._waiting.popleft()
            if not place.done():
                self._inside += 1
                place.set_result(None)


def no_descriptor_left() -> bool:
    """Return whether no descriptor can be opened now, which makes libcurl's resolver fail as well."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in NO_DESCRIPTOR
    return False
