"""The records that the layers exchange: frozen, slotted, without side effects.

Times are integer microseconds since 1970 UTC, by the ledger's clock.
"""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import TYPE_CHECKING, Any

from longshore.domain.kinds import DOWNLOAD, Status
from longshore.domain.scope import Scope

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, slots: bool) -> Any:
        """Make a record. Frozen is the type checker's word only: at run time it would make a job cost 15 µs, not 4."""
        return dataclasses.dataclass(slots=slots, unsafe_hash=frozen)


Micros = int
SECOND: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Expect:
    """The caller's expectations of the bytes."""

    sha256: str | None = None
    size_bytes: int | None = None
    media_type: str | None = None
    digests: tuple[tuple[str, str], ...] = ()  # (algorithm, hex): md5, sha1, sha512 from lists


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One piece of work as it is handed in. Build downloads with `domain.requests.download_request`."""

    job_type: str
    key: str | None  # idempotency_key; None for a job that is never the same as another
    work_id: str | None = None
    source_ref: str | None = None  # the caller's `artifact_id`, part of the v1 key
    url: str | None = None  # as given; its canonical form is what is requested
    canonical_url: str | None = None
    host: str = ""  # what politeness is counted under; "" when no host is involved
    mirrors: tuple[str, ...] = ()
    expect: Expect = field(default_factory=Expect)
    name: str | None = None  # display name only
    headers: tuple[tuple[str, str], ...] = ()
    priority: int = 0  # higher first
    params: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()  # artifact ids
    max_attempts: int | None = None
    run_id: str | None = None
    request_id: str | None = None
    user_id: str | None = None
    book_id: str | None = None
    media_type: str | None = None  # of a torrent: audiobook, ebook …
    source: str | None = None
    retry_of: str | None = None
    login: str = ""  # the configured login that its key holds, as a hash


@dataclass(frozen=True, slots=True)
class Planned:
    """The result of planning one request."""

    job_id: str
    created: bool
    status: Status
    stage: str
    contradicts: str | None = None  # the expectation that another job of the same URL excludes


@dataclass(frozen=True, slots=True)
class Job:
    """A row of `jobs`, whole."""

    scope: Scope
    job_id: str
    job_type: str
    status: Status
    stage: str
    request: JobRequest
    priority: int
    progress: int | None
    attempts: int
    claims: int
    lease_owner: str | None
    lease_until: Micros | None
    lease_epoch: int
    row_version: int
    next_attempt_at: Micros | None
    cancel_requested_at: Micros | None
    reason: str | None  # error_code: the last attempt's own
    message: str | None  # error_message_safe
    debug_id: str | None
    reuse_of_job_id: str | None
    retry_of: str | None
    external_job_id: str | None
    created_at: Micros
    updated_at: Micros
    completed_at: Micros | None
    failed_at: Micros | None
    trail: str | None = None  # the results of its candidates: `domain.transfer.mirrors.Trail`
    bytes_done: int | None = None  # while it runs: as of a few seconds ago
    bytes_total: int | None = None
    results: tuple[str, ...] = ()  # artifact ids; read only where jobs are looked up or listed

    @property
    def url(self) -> str | None:
        """The URL of the request, if it has one."""
        return self.request.url


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one job until a time. Every later write names `job_id` and `epoch`."""

    scope: Scope
    job_id: str
    epoch: int
    owner: str
    until: Micros
    job: Job
    host_slots: int = 1  # how many leases its owner may run at once at the job's host


@dataclass(frozen=True, slots=True)
class Validators:
    """What a server said that identifies one version of one object."""

    etag: str | None = None  # as sent, with W/ and quotes
    last_modified: str | None = None

    @property
    def strong_etag(self) -> str | None:
        """The entity tag, if it is one that ranges may rely on."""
        return self.etag if self.etag and not self.etag.startswith("W/") else None


@dataclass(frozen=True, slots=True)
class Blob:
    """Published bytes."""

    sha256: str
    size_bytes: int
    pointer: str  # sensitive: never leaves the service
    backend: str  # local | s3 | postgres
    content_type: str
    deduplicated: bool = False  # the bytes were there before
    dedupe_action: str = "download"  # or hardlink, copy: equal bytes were in another project of the tenant


@dataclass(frozen=True, slots=True)
class NewArtifact:
    """What registering adds to the registry, beside the job's completion."""

    blob: Blob
    artifact_type: str = "download"
    role: str = "result"
    name: str | None = None  # display name
    schema_version: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A row of the registry."""

    scope: Scope
    artifact_id: str
    artifact_type: str
    backend: str
    pointer: str
    content_type: str
    size_bytes: int
    sha256: str
    name: str | None
    schema_version: str | None
    metadata: dict[str, Any]
    created_at: Micros
    created_by_job_id: str | None
    availability: str  # available | missing
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class UrlVersion:
    """What one URL last gave us."""

    canonical_url: str
    sha256: str
    validators: Validators
    size_bytes: int
    seen_at: Micros
    revalidated_at: Micros
    artifact_id: str = ""
    job_id: str = ""
    final_url: str | None = None
    caller: str | None = ""  # a hash of the request's own headers; None: not known
    vary: str | None = None


__all__ = [
    "DOWNLOAD",
    "SECOND",
    "Artifact",
    "Blob",
    "Expect",
    "Job",
    "JobRequest",
    "Lease",
    "Micros",
    "NewArtifact",
    "Planned",
    "Scope",
    "Status",
    "UrlVersion",
    "Validators",
]
