"""Arguments and results of the ledger's operations that are not domain records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from longshore.domain.model import JobRequest, Lease, Micros, Status
from longshore.domain.policy.host_limits import HostFacts

EffectClass = Literal["transactional", "keyed", "verifiable", "opaque"]
EffectState = Literal["intended", "confirmed", "failed", "in_doubt", "abandoned"]


@dataclass(frozen=True, slots=True)
class Move:
    """A leased job goes on to a stage; facts, if any, go to its history."""

    lease: Lease
    stage: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settled:
    """How a lease ended."""

    job_id: str
    status: Status
    stage: str
    artifact_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResultArtifact:
    """A result that was just registered."""

    artifact_id: str
    artifact_type: str
    content_type: str
    size_bytes: int
    sha256: str
    name: str | None
    schema_version: str | None
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CompletedJob:
    """A job that completes in the current transaction, as `on_completed` gets it."""

    tenant_id: str
    project_id: str
    job_id: str
    job_type: str
    request: JobRequest
    results: tuple[ResultArtifact, ...]
    completed_at: Micros


@dataclass(frozen=True, slots=True)
class Renewed:
    """Which leases are lost, whose jobs should stop, and how long the others hold."""

    lost: frozenset[tuple[str, int]]
    canceled: frozenset[str]
    until: Micros


@dataclass(frozen=True, slots=True)
class Intent:
    """A side effect that is about to happen."""

    lease: Lease
    kind: str
    key: str
    effect_class: EffectClass = "verifiable"
    fingerprint: str | None = None
    request: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Begun:
    """What the ledger knows of an effect before it runs: run it only when `new`, look first when `unfinished`."""

    state: Literal["new", "confirmed", "unfinished", "in_doubt"]
    result: dict[str, Any] | None = None
    request: dict[str, Any] | None = None  # of the attempt that did not finish


@dataclass(frozen=True, slots=True)
class Effect:
    """A row of the effect ledger."""

    job_id: str
    key: str
    kind: str
    effect_class: EffectClass
    state: EffectState
    epoch: int
    fingerprint: str | None
    request: dict[str, Any]
    result: dict[str, Any] | None
    started_at: Micros
    finished_at: Micros | None


@dataclass(frozen=True, slots=True)
class CancelResult:
    """What a cancel came to: over at once, asked to stop, over before, and not there."""

    canceled: tuple[str, ...] = ()
    requested: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """A row of `hosts`, with what is in flight now."""

    host: str
    concurrency: int | None
    rate_per_s: float | None
    paused: bool
    cooldown_until: Micros | None
    failures: int
    failed_at: Micros | None
    reason: str | None
    in_flight: int
    facts: HostFacts  # what decides its state


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep moved."""

    expired: int
    promoted: int
