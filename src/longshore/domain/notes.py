"""What a run reports while it goes on: small values, handed to one callable. The command line prints them, the web streams them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from longshore.domain.model import Micros, Scope

Kind = Literal[
    "planned", "started", "progress", "retry", "waiting", "completed", "held", "failed", "canceled", "summary", "counts"
]
SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that happened to one job, or the summary of a run."""

    kind: Kind
    ts: Micros
    scope: Scope = field(default_factory=Scope)
    job_id: str | None = None
    url: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # the fields of DESIGN §9 for this type of line

    def line(self) -> dict[str, Any]:
        """Give the fields of a JSON line, `type schema ts` first."""
        line: dict[str, Any] = {"type": self.kind, "schema": SCHEMA, "ts": self.ts}
        if self.job_id is not None:
            line["job_id"] = self.job_id
        if self.url is not None:
            line["url"] = self.url
        return line | self.facts


Listener = Callable[[Note], None]


def held_facts(artifact_id: str, sha256: str, size_bytes: int, path: str | None, attempts: int) -> dict[str, Any]:
    """Give the fields of a `held` line."""
    return {
        "artifact_id": artifact_id,
        "sha256": sha256,
        "size_bytes": size_bytes,
        **({"path": path} if path else {}),
        "deduplicated": False,
        "resumed_from_bytes": 0,
        "attempts": attempts,
        "why": "already held",
    }
