"""What the depot's verbs give back: plain records, failures of items as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from longshore.domain.model import Artifact, Scope
from longshore.domain.states import Status
from longshore.errors import NoStore

EVERYBODY: Final = Scope("", "")  # what is found is no tenant's


@dataclass(frozen=True, slots=True)
class Refused:
    """One item of a list that cannot be planned, and why."""

    item: str  # as given, shortened
    message: str
    line: int | None = None


@dataclass(slots=True)
class Added:
    """What adding a list came to."""

    new: int = 0
    known: int = 0
    refused: list[Refused] = field(default_factory=list)  # the first thousand
    refused_count: int = 0


@dataclass(frozen=True, slots=True)
class Got:
    """What asking for one thing came to."""

    job_id: str
    url: str | None
    status: Status
    held_before: bool = False  # nothing had to be fetched
    artifact: Artifact | None = None
    path: Path | None = None  # where the store is local
    reason: str | None = None
    message: str | None = None
    attempts: int = 0

    @property
    def ok(self) -> bool:
        """Tell whether the bytes are held."""
        return self.artifact is not None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `verify` or `reconcile` found, and what was done about it."""

    kind: str
    scope: Scope
    subject: str  # an artifact, a job, a hash: never a pointer
    message: str
    healed: bool = False
    remedy: str | None = None  # what is left for a person to do, where the message does not say it


@dataclass(slots=True)
class Report:
    """What `verify` or `reconcile` came to."""

    checked: int = 0
    bytes: int = 0
    quarantined: int = 0  # damaged blobs that were moved out of reach
    findings: list[Finding] = field(default_factory=list)

    def found(
        self, kind: str, scope: Scope, subject: str, message: str, *, healed: bool = False, remedy: str | None = None
    ) -> None:
        """Write down one finding; what is healed needs no remedy."""
        self.findings.append(Finding(kind, scope, subject, message, healed, None if healed else remedy))

    def found_no_store(self) -> None:
        """Write down that what we look at is not the store that the registry means."""
        message = "no blob at all is there: is it mounted? Nothing was marked"
        self.found("store_empty", EVERYBODY, "store", message, remedy=NoStore.hint)

    @property
    def remedies(self) -> list[str]:
        """What is left to do, each thing once."""
        return list(dict.fromkeys(finding.remedy for finding in self.findings if finding.remedy))

    @property
    def damage(self) -> list[Finding]:
        """The findings that nobody healed."""
        return [finding for finding in self.findings if not finding.healed]


@dataclass(frozen=True, slots=True)
class Overview:
    """How the depot stands."""

    jobs: dict[str, int]  # every status has its count
    details: dict[str, Any] = field(default_factory=dict)
