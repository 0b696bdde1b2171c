"""Summary figures of all downloads, computed from the manifest in one pass with little memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from longshore.exports.manifest_rows import ManifestRow

_STEP: Final = math.log(1.05)  # buckets 5 % wide: the accuracy of a percentile


@dataclass(slots=True)
class Spread:
    """A distribution in logarithmic buckets, whose memory does not grow with the number of values."""

    buckets: Counter[int] = field(default_factory=Counter)
    count: int = 0

    def add(self, value: float) -> None:
        """Add one value."""
        self.buckets[math.floor(math.log(max(value, 1e-3)) / _STEP)] += 1
        self.count += 1

    def percentile(self, share: float) -> float | None:
        """Return the value that `share` of all values do not exceed; None without values."""
        wanted, seen = share * self.count, 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return round(math.exp((bucket + 1) * _STEP), 3)
        return None


@dataclass(slots=True)
class Figures:
    """The figures, accumulated row by row."""

    downloads: int = 0
    completed: int = 0
    resumed: int = 0
    resumed_completed: int = 0
    bytes_streamed: int = 0
    bytes_reused: int = 0  # not fetched again because they were stored
    fsync_ms: Spread = field(default_factory=Spread)
    mibps: Spread = field(default_factory=Spread)
    decisions: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)
    shards: Counter[str] = field(default_factory=Counter)

    def add(self, row: ManifestRow) -> None:
        """Add one job."""
        facts = row.facts
        self.downloads += 1
        self.completed += row.status == "completed"
        if facts.get("resume_decision") == "resume":
            self.resumed += 1
            self.resumed_completed += row.status == "completed"
        if "resume_reason" in facts:
            self.decisions[str(facts["resume_reason"])] += 1
        if "dedupe_action" in facts:
            self.actions[str(facts["dedupe_action"])] += 1
        self.bytes_streamed += int(facts.get("stream_bytes") or 0)
        self.bytes_reused += int(row.size_bytes or 0) if row.status == "skipped" else 0
        if row.sha256 is not None:
            self.shards[str(facts.get("shard_prefix", row.sha256[:2]))] += 1
        for name, spread in (("fsync_ms", self.fsync_ms), ("avg_write_mibps", self.mibps)):
            if isinstance(facts.get(name), (int, float)):
                spread.add(float(facts[name]))

    def as_dict(self, damaged: int) -> dict[str, Any]:
        """Return the figures by name; `damaged` is the number of artifacts whose bytes are lost."""
        counts = list(self.shards.values())
        return {
            "downloads": self.downloads,
            "completed": self.completed,
            "resumed": self.resumed,
            "resumed_success": round(self.resumed_completed / self.resumed, 4) if self.resumed else None,
            "corrupted": damaged,
            "bytes_streamed": self.bytes_streamed,
            "bytes_reused": self.bytes_reused,
            "fsync_ms_p50": self.fsync_ms.percentile(0.5),
            "fsync_ms_p95": self.fsync_ms.percentile(0.95),
            "write_mibps_p50": self.mibps.percentile(0.5),
            "resume_reasons": dict(sorted(self.decisions.items())),
            "dedupe_actions": dict(sorted(self.actions.items())),
            "shards": {"used": len(counts), "least": min(counts, default=0), "most": max(counts, default=0)},
        }


def figures(rows: Iterable[ManifestRow]) -> Figures:
    """Return the figures of a manifest."""
    gathered = Figures()
    for row in rows:
        gathered.add(row)
    return gathered
