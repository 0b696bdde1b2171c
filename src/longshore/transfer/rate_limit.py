"""Limit the bytes per second that all transfers of one process receive together.

Every received byte moves the time forward at which the next byte is due. A transfer that is ahead of that time by more
than `AHEAD_S` pauses in its write callback until then, and no request begins while the process is ahead, so many small
bodies keep the limit as well. The debt is shared, so it does not matter which transfer pauses.

Rejected: libcurl's MAX_RECV_SPEED_LARGE. It limits one connection, measures from the start of each transfer, and would
have to be divided again whenever a transfer begins or ends.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from longshore.domain.policy.max_rate import parse_max_rate, rate_at
from longshore.domain.settings import TransferSettings

AHEAD_S: Final = 0.05  # pauses shorter than this are not worth a switch
CREDIT_S: Final = 0.25  # unused time that may be caught up, so that gaps between small bodies do not count
LONGEST_S: Final = 5.0  # a pause; then the timetable is read again


class RateLimit:
    """The receive rate of one process: its share of `transfer.max_rate`."""

    def __init__(self, settings: TransferSettings) -> None:
        self._entries = parse_max_rate(settings.max_rate)
        self._share = settings.max_rate_shares
        self._due = 0.0  # when the next byte may come, by the monotonic clock; 0: none came yet
        self._rate, self._read_at = 0.0, 0.0

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def is_pausing(self) -> bool:
        """Return whether transfers wait for the limit now, not for a server."""
        return self._due - time.monotonic() > -CREDIT_S

    def spend(self, nbytes: int) -> float:
        """Count received bytes; return for how many seconds the transfer should pause, 0: not at all."""
        now = time.monotonic()
        rate = self._rate_now(now)
        if not rate:
            self._due = 0.0
            return 0.0
        self._due = (max(self._due, now - CREDIT_S) if self._due else now) + nbytes / rate
        ahead = self._due - now
        return min(ahead, LONGEST_S) if ahead > AHEAD_S else 0.0

    async def ready(self) -> None:
        """Wait until a further request may begin."""
        while self._entries:
            ahead = self._due - time.monotonic()
            if ahead <= AHEAD_S or not self._rate_now(time.monotonic()):
                return
            await asyncio.sleep(min(ahead, LONGEST_S))

    def _rate_now(self, now: float) -> float:
        """Return the bytes per second of this process at this time of day; 0: no limit."""
        if not self._read_at or now - self._read_at >= 1.0:
            local = time.localtime()
            self._rate = rate_at(self._entries, local.tm_hour * 60 + local.tm_min) / self._share
            self._read_at = now
        return self._rate
