"""The rows of the ledger's fragments and statements, by name.

Each class has the columns of one fragment (`{job}`) or statement of `sql/`, in their order; a test compares them. Make one
with `JobRow._make(row)`: that is a tuple's own constructor, a third of a microsecond.
"""

from __future__ import annotations

from typing import NamedTuple

from longshore.domain.model import Micros
from longshore.ledger.records import EffectClass, EffectState


class JobRow(NamedTuple):
    """{job}: a job as it is stored."""

    seq: int
    tenant_id: str
    project_id: str
    job_id: str
    job_type: str
    status: str
    stage: str
    progress: int | None
    bytes_done: int | None
    bytes_total: int | None
    priority: int
    attempts: int
    claims: int
    lease_owner: str | None
    lease_until: Micros | None
    lease_epoch: int
    row_version: int
    next_attempt_at: Micros | None
    cancel_requested_at: Micros | None
    error_code: str | None
    error_message_safe: str | None
    error_debug_id: str | None
    reuse_of_job_id: str | None
    retry_of: str | None
    external_job_id: str | None
    created_at: Micros
    updated_at: Micros
    completed_at: Micros | None
    failed_at: Micros | None
    idempotency_key: str | None
    work_id: str | None
    source_ref: str | None
    url: str | None
    canonical_url: str | None
    host: str
    request: str | None
    max_attempts: int | None
    run_id: str | None
    request_id: str | None
    user_id: str | None
    book_id: str | None
    media_type: str | None
    source: str | None
    lane_id: int
    trail: str | None


class LeaseRow(NamedTuple):
    """{given}: a lease that ends without an outcome."""

    seq: int
    tenant_id: str
    project_id: str
    job_id: str
    job_type: str
    stage: str
    status: str
    lease_epoch: int
    slot_host: str | None
    lane_id: int
    priority: int
    cancel_requested_at: Micros | None


class FencedRow(NamedTuple):
    """`fence`: the job of a lease that is held, as the writing transaction sees it."""

    job_id: str
    seq: int
    stage: str
    status: str
    job_type: str
    attempts: int
    lane_id: int
    priority: int
    host: str
    slot_host: str | None
    canonical_url: str | None
    cancel_requested_at: Micros | None
    lease_epoch: int


class ControlRow(NamedTuple):
    """`control_rows`: a job that is to be canceled or tried again."""

    job_id: str
    seq: int
    status: str
    stage: str
    lease_owner: str | None
    cancel_requested_at: Micros | None


class KnownRow(NamedTuple):
    """`plan_find`: the current job of a key. Of a purged job only the tombstone is left, without seq and request."""

    idempotency_key: str
    job_id: str
    status: str
    stage: str
    seq: int | None = None
    request: str | None = None


class ArtifactRow(NamedTuple):
    """{artifact}."""

    tenant_id: str
    project_id: str
    artifact_id: str
    artifact_type: str
    storage_backend: str
    storage_pointer: str
    content_type: str
    byte_size: int
    sha256: str
    schema_version: str | None
    name: str | None
    metadata: str | None
    created_at: Micros
    created_by_job_id: str
    previous_id: str | None
    availability: str


class EffectRow(NamedTuple):
    """{effect}."""

    job_id: str
    op_key: str
    kind: str
    effect_class: EffectClass
    state: EffectState
    epoch: int
    fingerprint: str | None
    request: str | None
    result: str | None
    started_at: Micros
    finished_at: Micros | None


class HostRow(NamedTuple):
    """{host}: what is remembered of a host."""

    host: str
    concurrency: int | None
    rate_per_s: float | None
    paused: int
    cooldown_until: Micros | None
    failures: int
    failed_at: Micros | None
    next_start_at: Micros | None
    reason: str | None
    silent_since: Micros | None
    silences: int
    nameless_at: Micros | None
    faulty_since: Micros | None
    cooldown_tenant: str | None


class UrlVersionRow(NamedTuple):
    """`url_versions`: what a URL last gave."""

    canonical_url: str
    sha256: str
    etag: str | None
    last_modified: str | None
    byte_size: int
    seen_at: Micros
    revalidated_at: Micros
    artifact_id: str
    job_id: str
    final_url: str | None
    caller: str
    vary: str | None


class TorrentRow(NamedTuple):
    """{tracked}: a torrent job with what the sync loop remembers of it."""

    tenant_id: str
    project_id: str
    job_id: str
    status: str
    stage: str
    row_version: int
    user_id: str
    book_id: str
    media_type: str
    source: str
    external_job_id: str | None
    infohash_v1: str | None
    infohash_v2: str | None
    watch: str
    held_at: Micros | None
    cancel_requested_at: Micros | None
    created_at: Micros
    updated_at: Micros
    completed_at: Micros | None
    first_not_found_at: Micros | None
    failure_reason: str | None
    error_message_safe: str | None
    progress: int | None
    lease_until: Micros | None
    released_at: Micros | None


class TokenRow(NamedTuple):
    """`token_list`: a token or a dashboard session, without its secret."""

    token_id: str
    kind: str
    parent_id: str | None
    name: str
    tenant_id: str
    project_id: str
    scopes: str
    created_at: Micros
    expires_at: Micros | None
    revoked_at: Micros | None
    last_used_at: Micros | None


class PurgeRow(NamedTuple):
    """`purge_page`: a job that nothing points to, with the jobs that it points to."""

    job_id: str
    status: str
    seq: int
    retry_of: str | None
    reuse_of_job_id: str | None


class DeletedRow(NamedTuple):
    """`delete_rows`: an artifact that is about to be deleted."""

    artifact_id: str
    artifact_type: str
    sha256: str
    byte_size: int
    storage_pointer: str
    created_at: Micros
    created_by_job_id: str
