"""The events of a run, passed to one callable: the command line prints them, the web server streams them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from longshore.domain.model import Micros, Scope

Kind = Literal[
    "planned",
    "started",
    "progress",
    "retry",
    "waiting",
    "completed",
    "held",
    "failed",
    "canceled",
    "stopped",
    "summary",
    "counts",
]
SCHEMA: Final = 1
REFUSED: Final = "refused"  # why a run ended early: too many refusals in a row that one setting is to blame for


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One thing that happened to one job, or the summary of a run."""

    kind: Kind
    ts: Micros
    scope: Scope = field(default_factory=Scope)
    job_id: str | None = None
    url: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # the other fields of this type of event

    def line(self) -> dict[str, Any]:
        """Return the fields of a JSON line, `type schema ts` first."""
        line: dict[str, Any] = {"type": self.kind, "schema": SCHEMA, "ts": self.ts}
        if self.job_id is not None:
            line["job_id"] = self.job_id
        if self.url is not None:
            line["url"] = self.url
        return line | self.facts


Listener = Callable[[RunEvent], None]


def stored_facts(artifact_id: str, sha256: str, size_bytes: int, path: str | None, attempts: int) -> dict[str, Any]:
    """Return the fields of a `held` line."""
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
