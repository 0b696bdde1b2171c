"""Plain settings of the engine, with the defaults of the design. `config` makes them; nothing here reads anything."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from longshore.errors import BadInput


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """How often and when a failed attempt is repeated."""

    max_attempts: int = 5
    base_s: float = 1.0
    cap_s: float = 3600.0
    max_claims: int = 100


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """How long a lease lasts and how often it is renewed."""

    ttl_s: float = 120.0
    renew_s: float = 40.0


@dataclass(frozen=True, slots=True)
class ResumeSettings:
    """When bytes of an earlier attempt may be used."""

    prefix_check_bytes: int = 65_536
    allow_without_validators: bool = False


@dataclass(frozen=True, slots=True)
class DedupeSettings:
    """When content that is held already stands for a URL. 0 asks the server every time, infinity never."""

    known_content: bool = True
    revalidate_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReconcileSettings:
    """When rows and files are compared."""

    interval_s: float = 3600.0
    stale_part_s: float = 3600.0


BATCH_ITEMS: Final = 512  # bodies that are published together at the most


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Everything the worker and the flow need to know."""

    concurrency: int = 32  # transfers at once in this process
    ahead: int = 480  # leases held beyond the running ones, so that claims and publishing come in batches
    small_bytes: int = 262_144  # a body up to here stays in memory until it is published
    batch_items: int = BATCH_ITEMS
    batch_bytes: int = 64 << 20
    max_bytes: int = 1 << 40
    deadline_s: float | None = None
    checkpoint_bytes: int = 64 << 20  # a large body is made durable this often
    segments: int = 1
    drain_s: float = 3.0  # a person waits: what takes longer is made durable and given back
    sniff: bool = True
    offline: bool = False
    retry: RetrySettings = field(default_factory=RetrySettings)
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    resume: ResumeSettings = field(default_factory=ResumeSettings)
    dedupe: DedupeSettings = field(default_factory=DedupeSettings)
    reconcile: ReconcileSettings = field(default_factory=ReconcileSettings)


def freshness_s(policy: str | float) -> float:
    """Read a freshness policy: `always` asks each time, `never` trusts what is held, a number is an age in seconds."""
    if policy == "always":
        return 0.0
    if policy == "never":
        return math.inf
    try:
        seconds = float(policy)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise BadInput(f"a freshness policy is `always`, `never` or an age in seconds, not {policy!r}")
    return seconds
