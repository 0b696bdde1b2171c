"""How many leases a worker holds beyond the jobs that run.

Problem: a claim, the intents and the ends of a batch each take several round trips to the ledger. If the batch is small and
the database is far away, the worker spends its time waiting (at 10 ms: 12 % of the files per second, at 64 leases). If
the batch is large and the jobs are slow, leases wait in one worker while others are idle.

Decision: hold ahead what the worker finishes within `LEAD_S` at its present pace, at least `least`, at most `most`. So a
lease waits about as long as that, whatever the jobs are like, and the cost of a round trip is shared by as many jobs as
end meanwhile. A worker begins with the least: it has no pace yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Final

LEAD_S: Final = 1.0  # how long a lease may wait in a worker
_MEMORY_S: Final = 0.5  # how fast the measured pace follows the present one


@dataclass(slots=True)
class LeasesAhead:
    """The measured pace of one worker and what follows from it."""

    least: int
    most: int
    _pace: float = 0.0  # jobs per second
    _at: float = 0.0

    def ended(self, now: float) -> None:
        """Count a job that ended now, by a monotonic clock."""
        self._pace = self._pace * exp((self._at - now) / _MEMORY_S) + 1 / _MEMORY_S
        self._at = now

    def count(self, now: float) -> int:
        """Return how many leases to hold ahead now."""
        pace = self._pace * exp((self._at - now) / _MEMORY_S)
        return max(self.least, min(self.most, int(pace * LEAD_S)))
