"""Rate limits for requests and for failed authentication. In memory, bounded; the clock is an argument."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float


class Throttle:
    """Token buckets by key: `rate_per_s` on average, `burst` at once. Evicts the least recently used keys."""

    def __init__(self, rate_per_s: float, burst: float, *, keys_max: int = 10_000) -> None:
        self.rate_per_s, self.burst, self.keys_max = rate_per_s, burst, keys_max
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, key: str, now_s: float) -> float:
        """Return the seconds until the key has a token; 0 if it has one now."""
        bucket = self._filled(key, now_s)
        return 0.0 if bucket.level >= 1 else (1 - bucket.level) / self.rate_per_s

    def take(self, key: str, now_s: float) -> float:
        """Take a token and return 0, or return the seconds to wait."""
        wait = self.wait_s(key, now_s)
        if wait == 0:
            self._buckets[key].level -= 1
        return wait

    def _filled(self, key: str, now_s: float) -> _Bucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self.burst, now_s)
            if len(self._buckets) > self.keys_max:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            bucket.level = min(self.burst, bucket.level + max(0.0, now_s - bucket.at) * self.rate_per_s)
            bucket.at = now_s
        return bucket
