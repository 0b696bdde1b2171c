"""The models of the API. Unknown fields are rejected, so a client cannot set a status, a tenant or a pointer."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from longshore.domain.kinds import Status

Text = Annotated[str, Field(max_length=65_536)]
Short = Annotated[str, Field(max_length=1024)]
Id = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._:-]+$")]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,63}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
When = Annotated[str, Field(description="RFC 3339, UTC", json_schema_extra={"format": "date-time"})]


def writable(value: dict[str, Any]) -> dict[str, Any]:
    """Return parameters that can be written as JSON in UTF-8; `"\\ud800"` is valid JSON and cannot."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("contains a lone surrogate") from None
    except (ValueError, RecursionError):
        raise ValueError("cannot be written as JSON") from None
    return value


class Taken(BaseModel):
    """Base of request bodies."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=False)


class JobIn(Taken):
    """One piece of work."""

    url: Text | None = Field(default=None, description="the URL to fetch (job type `download`)")
    work_id: Text | None = Field(default=None, description="your id of the work; the canonical URL if absent")
    artifact_id: Text | None = Field(default=None, description="your id of the file within the work")
    mirrors: list[Text] = Field(default_factory=list, max_length=64)
    sha256: Sha256 | None = None
    size_bytes: int | None = Field(default=None, ge=0, le=1 << 62)
    media_type: Short | None = None
    digests: dict[Short, Short] = Field(default_factory=dict, max_length=8)
    name: Short | None = None
    headers: dict[Short, Text] = Field(default_factory=dict, max_length=64)
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    params: Annotated[dict[str, Any], AfterValidator(writable)] = Field(default_factory=dict)
    run_id: Short | None = None
    job_type: Id = "download"
    inputs: list[Id] = Field(default_factory=list, max_length=1000, description="artifact ids (custom job types)")
    key: Short | None = Field(
        default=None,
        description="idempotency key of a custom job type; derived from inputs and params if absent; with null, every"
        " request is a new job that runs",
    )
    again: Literal["never", "failed", "always"] = Field(
        default="never",
        description="make a linked job: `failed` if the old one failed or was canceled, `always` if it completed too",
    )


class JobOut(BaseModel):
    """The current state of a job."""

    job_id: str
    tenant_id: str
    project_id: str
    job_type: str
    status: Status
    stage: str
    url: str | None
    canonical_url: str | None
    host: str
    name: str | None
    work_id: str | None
    source_ref: str | None
    expected_sha256: str | None
    expected_size_bytes: int | None
    priority: int
    progress: int | None
    bytes_done: int | None = Field(description="while it runs, as of a few seconds ago")
    bytes_total: int | None
    attempts: int
    claims: int
    reason: str | None
    message: str | None
    debug_id: str | None
    next_attempt_at: When | None
    lease_owner: str | None
    lease_until: When | None
    lease_epoch: int
    cancel_requested_at: When | None
    reuse_of_job_id: str | None
    retry_of: str | None
    run_id: str | None
    request_id: str | None
    input_artifacts: list[str] = Field(description="artifact ids")
    result_artifacts: list[str] = Field(description="artifact ids, in order; those of the reused job if it was skipped")
    external_job_id: str | None
    user_id: str | None
    book_id: str | None
    media_type: str | None
    source: str | None
    created_at: When
    updated_at: When
    completed_at: When | None
    failed_at: When | None


class TorrentOut(JobOut):
    """The current state of a torrent job."""

    torrent_name: str | None
    client_state: str | None = Field(description="the client's own word")
    substate: str | None
    note: str | None = Field(description="why it does not go on, or was not imported yet")


class AssetOut(BaseModel):
    """One medium of a book."""

    media_type: str
    status: Literal["available", "missing", "removed"]
    artifact_id: str | None = Field(description="of several files, the one that stands for them")
    job_id: str | None = Field(description="the job whose results are the asset's files")
    updated_at: When


class BookOut(BaseModel):
    """A book with its assets."""

    book_id: str
    state: Literal["Archive", "Library"]
    updated_at: When
    assets: list[AssetOut]


class BookPage(BaseModel):
    """One page of books."""

    books: list[BookOut]
    next: str | None


class JobAnswer(BaseModel):
    """A job and whether this request created it."""

    created: bool
    job: JobOut


class UploadAnswer(JobAnswer):
    """The job of an upload, and its artifact."""

    artifact_id: str


class JobPage(BaseModel):
    """One page of jobs, newest first."""

    jobs: list[JobOut]
    next: str | None = Field(description="cursor of the next page; null at the end")


class EventOut(BaseModel):
    """One event."""

    seq: str
    at: When
    job_id: str | None
    kind: str
    data: dict[str, Any]


class ClaimOut(BaseModel):
    """One lease grant and how it ended."""

    epoch: int
    owner: str
    claimed_at: When
    ended_at: When | None
    ended_how: str | None


class EffectOut(BaseModel):
    """One durable side effect."""

    kind: str
    key: str
    state: str
    epoch: int
    begun_at: When
    confirmed_at: When | None
    took_s: float | None


class ArtifactOut(BaseModel):
    """A record of the registry."""

    artifact_id: str
    artifact_type: str
    content_type: str
    size_bytes: int
    sha256: str
    name: str | None
    schema_version: str | None
    metadata: dict[str, Any]
    created_at: When
    created_by_job_id: str | None
    availability: str
    previous_id: str | None


class ArtifactFilterIn(Taken):
    """Which artifacts."""

    sha256: Sha256 | None = None
    url: Text | None = None
    work_id: Text | None = None
    artifact_type: Id | None = None
    metadata: dict[Short, str | bool | int | float] | None = Field(default=None, max_length=8)


class DeleteIn(Taken):
    """Artifacts to delete: named ones, or all that match."""

    artifact_ids: list[Id] | None = Field(default=None, min_length=1, max_length=10_000)
    filter: ArtifactFilterIn | None = None
    expected_count: int | None = Field(
        default=None,
        ge=0,
        le=1 << 53,
        description="respond with 409 if the number of matching artifacts differs; required with a filter",
    )
    why: Short | None = Field(default=None, description="reason, for the tombstones and the audit log")


class DeleteOut(BaseModel):
    """The result of a deletion."""

    count: int = Field(description="number of deleted artifacts")
    artifact_ids: list[str] = Field(description="the first 1,000 of them")
    freed_bytes: int = Field(description="bytes to which nothing refers any more")
    used: dict[str, str] = Field(
        description="artifacts that were not deleted, each with the unfinished job that needs it"
    )
    unknown: list[str] = Field(description="ids that do not exist")


class JobDetail(BaseModel):
    """A job with its history."""

    job: JobOut
    events: list[EventOut]
    claims: list[ClaimOut]
    effects: list[EffectOut]
    artifacts: list[ArtifactOut]


class ArtifactPage(BaseModel):
    """One page of artifacts, newest first."""

    artifacts: list[ArtifactOut]
    next: str | None


class ProvenanceOut(BaseModel):
    """A job that produced or used an artifact."""

    job_id: str
    role: str
    url: str | None
    work_id: str | None
    at: When | None


class Provenance(BaseModel):
    """Every job linked to an artifact."""

    artifact: ArtifactOut
    provenance: list[ProvenanceOut]


class JobFilterIn(Taken):
    """Which jobs."""

    status: Status | None = None
    reason: Short | None = None
    host: Short | None = None
    url: Text | None = None
    work_id: Text | None = None
    job_type: Id | None = None
    run_id: Short | None = None
    current: bool = Field(default=False, description="only jobs that no retry has replaced, as `/failures` counts them")


class BulkIn(Taken):
    """An action on all matching jobs, or on the named ones."""

    filter: JobFilterIn | None = None
    job_ids: list[Id] | None = Field(default=None, max_length=10_000)
    expected_count: int | None = Field(
        default=None,
        ge=0,
        le=1 << 53,
        description="respond with 409 if the number of matching jobs differs; required with a filter",
    )


class BulkOut(BaseModel):
    """The result of a bulk action."""

    count: int = Field(description="number of changed jobs")
    job_ids: list[str] = Field(description="the first 1,000 of them; of a retry: the new jobs")


class FailureOut(BaseModel):
    """Jobs that failed for one reason at one host."""

    reason: str
    host: str
    count: int
    sample_job_id: str
    sample_url: str | None
    message: str | None
    meaning: str
    remedy: str
    last_at: When | None


class Failures(BaseModel):
    """The dead-letter list, grouped."""

    groups: list[FailureOut]


class RunOut(BaseModel):
    """The jobs that share one run's name, and what became of them."""

    run_id: str
    jobs: dict[Status, int]
    missing: int = Field(description="failed and not tried again")
    artifacts: int = Field(description="results, reused ones included")
    bytes: int = Field(description="of the results")
    begun_at: When
    ended_at: When | None = Field(description="null while jobs wait or run")


class RunsPage(BaseModel):
    """One page of runs, newest first."""

    runs: list[RunOut]
    next: str | None


class HostOut(BaseModel):
    """The limits and the state of one host."""

    host: str
    state: Literal["ok", "resting", "faulty", "given up", "paused"]
    concurrency: int | None
    rate_per_s: float | None
    paused: bool
    failures: int
    reason: str | None
    in_flight: int
    until: When | None


class HostPage(BaseModel):
    """One page of hosts by name."""

    hosts: list[HostOut]
    next: str | None


class HostIn(Taken):
    """New limits of a host. Absent fields stay; null restores the default."""

    concurrency: int | None = Field(default=None, ge=1, le=1024)
    rate_per_s: float | None = Field(default=None, ge=0, le=1_000_000)
    paused: bool | None = None


class TorrentIn(Taken):
    """A torrent for a book."""

    source: Text = Field(description="magnet link or URL of a .torrent file")
    user_id: Id
    book_id: Id
    media_type: Id
    again: bool = Field(
        default=False, description="also if this release failed before for the same book and media type"
    )


class TokenIn(Taken):
    """A token to create."""

    tenant_id: Slug
    project_id: Slug
    scopes: list[Literal["read", "write", "admin", "metrics"]] = Field(min_length=1, max_length=4)
    name: Short = ""
    expires_s: float | None = Field(default=None, gt=0, le=10 * 365 * 86_400)


class TokenOut(BaseModel):
    """A token without its secret."""

    token_id: str
    name: str
    tenant_id: str
    project_id: str
    scopes: list[str]
    created_at: When
    expires_at: When | None
    revoked_at: When | None
    last_used_at: When | None


class NewToken(BaseModel):
    """A token with its secret, which is shown only once."""

    token: str
    info: TokenOut


class Tokens(BaseModel):
    """All tokens."""

    tokens: list[TokenOut]


class AuditOut(BaseModel):
    """One entry of the audit log."""

    seq: int
    at: When
    token_id: str = Field(
        description="the token, also of a session that it opened; or `command line`, `nobody` (no valid token) …"
    )
    name: str = Field(description="the token's name")
    action: str
    target: str
    remote: str
    detail: dict[str, Any] = Field(
        description="the action (`act`), its target and count (`count`); the response's status"
    )


class AuditPage(BaseModel):
    """One page of the audit log, newest first."""

    entries: list[AuditOut]
    next: str | None


class Held(BaseModel):
    """Totals of the stored artifacts of this tenant and project."""

    artifacts: int
    bytes: int
    saved_artifacts: int
    saved_bytes: int


class Stats(BaseModel):
    """Statistics of this tenant and project."""

    jobs: dict[Status, int]
    held: Held
    oldest_waiting_at: When | None


class ProblemOut(BaseModel):
    """RFC 9457 with the program's own `reason`."""

    type: str
    title: str
    status: int
    detail: str
    reason: str
