"""Results of the depot's methods: plain records; failures of items are values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from longshore.domain.kinds import Status
from longshore.domain.model import Artifact, Scope
from longshore.errors import NoStore

EVERYBODY: Final = Scope("", "")  # findings that belong to no tenant


@dataclass(frozen=True, slots=True)
class Refused:
    """One item of a list that cannot be planned, and why."""

    item: str  # as given, shortened
    message: str
    line: int | None = None


@dataclass(slots=True)
class Added:
    """The result of adding a list."""

    new: int = 0
    known: int = 0
    refused: list[Refused] = field(default_factory=list)  # the first thousand
    refused_count: int = 0


@dataclass(frozen=True, slots=True)
class Got:
    """The result of one item of `get`."""

    job_id: str
    url: str | None
    status: Status
    held_before: bool = False  # nothing had to be fetched
    artifact: Artifact | None = None
    path: Path | None = None  # if the store is local
    reason: str | None = None
    message: str | None = None
    attempts: int = 0
    work_id: str | None = None

    @property
    def ok(self) -> bool:
        """Return whether the bytes are stored."""
        return self.artifact is not None


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of `verify` or `reconcile`, and the action taken."""

    kind: str
    scope: Scope
    subject: str  # an artifact, a job, a hash: never a pointer
    message: str
    healed: bool = False
    remedy: str | None = None  # what the user has to do, if the message does not say it


@dataclass(slots=True)
class Report:
    """The result of `verify` or `reconcile`."""

    checked: int = 0
    bytes: int = 0
    quarantined: int = 0  # damaged blobs that were quarantined
    findings: list[Finding] = field(default_factory=list)

    def found(
        self, kind: str, scope: Scope, subject: str, message: str, *, healed: bool = False, remedy: str | None = None
    ) -> None:
        """Record one finding; a repaired one needs no remedy."""
        self.findings.append(Finding(kind, scope, subject, message, healed, None if healed else remedy))

    def found_no_store(self) -> None:
        """Record that this is not the store that the registry refers to."""
        message = "the store has no blobs: is it mounted? Nothing was marked"
        self.found("store_empty", EVERYBODY, "store", message, remedy=NoStore.hint)

    @property
    def remedies(self) -> list[str]:
        """The remedies of all findings, without duplicates."""
        return list(dict.fromkeys(finding.remedy for finding in self.findings if finding.remedy))

    @property
    def damage(self) -> list[Finding]:
        """The findings that were not repaired."""
        return [finding for finding in self.findings if not finding.healed]


@dataclass(frozen=True, slots=True)
class Overview:
    """Counts of a depot."""

    jobs: dict[str, int]  # every status has its count
    details: dict[str, Any] = field(default_factory=dict)
