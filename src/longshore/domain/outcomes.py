"""How one attempt at one job ended: a closed set of values. `Ledger.settle` writes them; nothing else ends a lease."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from longshore.domain.model import NewArtifact, Validators


@dataclass(frozen=True, slots=True)
class Blame:
    """What one host answered, or did not, during an attempt."""

    host: str
    reason: str
    silent: bool = False  # nothing came: no connection, no name, no header
    heard: bool = False  # it answered
    rest_s: float | None = None  # Retry-After: the whole host rests
    nameless: bool = False  # the resolver says that the name does not exist
    waited_s: float = 0.0  # for a connection, in vain


@dataclass(frozen=True, slots=True)
class Completed:
    """The results exist, durable; register them and complete the job in one transaction."""

    artifacts: tuple[NewArtifact, ...]
    validators: Validators | None = None  # of a download: goes to url_versions with the canonical URL
    final_url: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # telemetry: resume decision, bytes, elapsed, fsync …
    vary: str | None = None
    caller: str | None = None  # who asked (`identity.object_versions`); None: the request's own headers say it
    blames: tuple[Blame, ...] = ()  # candidates that failed before the one that completed it


@dataclass(frozen=True, slots=True)
class Reused:
    """Nothing had to be done: another job's result is this one's (`skipped`, with `reuse_of_job_id`)."""

    of_job_id: str
    artifact_id: str
    facts: dict[str, Any] = field(default_factory=dict)
    pointer: str | None = None  # sensitive: for the caller's own eyes, never written
    revalidated: bool = False  # the server answered that nothing changed (304)


@dataclass(frozen=True, slots=True)
class Failed:
    """For good: a permanent reason, or the last attempt."""

    reason: str
    message: str
    debug_id: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    blames: tuple[Blame, ...] | None = None  # None: the host whose slot the lease has, for `reason`


@dataclass(frozen=True, slots=True)
class Deferred:
    """Later: back to waiting until `delay_s` has passed. `counts` says whether this was an attempt that failed."""

    reason: str
    message: str
    delay_s: float
    counts: bool = True
    host: str | None = None  # the learned host becomes the claim key
    host_rest_s: float | None = None  # Retry-After: the whole host rests
    facts: dict[str, Any] = field(default_factory=dict)
    trail: str | None = None  # what the job's candidates answered; None: as it is, "": nothing
    blames: tuple[Blame, ...] | None = None  # None: the host whose slot the lease has, for `reason`
    progressed: bool = (
        False  # bytes were added for good: counted, but neither towards max_attempts nor towards max_claims
    )


@dataclass(frozen=True, slots=True)
class Released:
    """Given back at once (drain, interruption, lost race for a slot); never counts as a failure."""

    reason: str = "interrupted"


@dataclass(frozen=True, slots=True)
class Canceled:
    """By request, observed by the worker."""

    message: str = "canceled by request"


Outcome = Completed | Reused | Failed | Deferred | Released | Canceled
