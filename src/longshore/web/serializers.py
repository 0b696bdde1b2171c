"""Serialize records for the API and the pages. Pointers, request headers and secrets in URLs are removed here."""

from __future__ import annotations

import shlex
from typing import Any

from longshore.domain.kinds import kind_of
from longshore.domain.model import SECOND, Artifact, Job, Micros
from longshore.domain.policy.redaction import safe_field, safe_source, safe_url, says_all
from longshore.domain.policy.tokens import Token
from longshore.domain.reasons import reason_named
from longshore.ledger.queries.runs import Run
from longshore.web.dashboard.render import stamp

View = dict[str, Any]


def shown_url(url: str | None) -> str | None:
    """Return a URL without credentials and other secrets."""
    return safe_url(url) if url else None


def job_view(job: Job) -> View:
    """Show a job."""
    request = job.request
    canonical = shown_url(request.canonical_url)
    return {
        "job_id": job.job_id,
        "tenant_id": job.scope.tenant_id,
        "project_id": job.scope.project_id,
        "job_type": job.job_type,
        "status": job.status,
        "stage": job.stage,
        "url": shown_url(request.url),
        "canonical_url": canonical,
        "host": request.host,
        "name": safe_field(request.name),
        "work_id": _same(request.work_id, request.canonical_url, canonical),
        "source_ref": _same(request.source_ref, request.canonical_url, canonical),
        "expected_sha256": request.expect.sha256,
        "expected_size_bytes": request.expect.size_bytes,
        "priority": job.priority,
        "progress": job.progress,
        "bytes_done": job.bytes_done,
        "bytes_total": job.bytes_total,
        "attempts": job.attempts,
        "claims": job.claims,
        "reason": job.reason,
        "message": job.message,
        "debug_id": job.debug_id,
        "next_attempt_at": stamp(job.next_attempt_at),
        "lease_owner": job.lease_owner,
        "lease_until": stamp(job.lease_until),
        "lease_epoch": job.lease_epoch,
        "cancel_requested_at": stamp(job.cancel_requested_at),
        "reuse_of_job_id": job.reuse_of_job_id,
        "retry_of": job.retry_of,
        "run_id": safe_field(request.run_id),
        "request_id": safe_field(request.request_id),
        "input_artifacts": list(request.inputs),
        "result_artifacts": list(job.results),
        "external_job_id": job.external_job_id,
        "user_id": safe_field(request.user_id),
        "book_id": safe_field(request.book_id),
        "media_type": request.media_type,
        "source": safe_source(request.source) if request.source else None,
        "created_at": stamp(job.created_at),
        "updated_at": stamp(job.updated_at),
        "completed_at": stamp(job.completed_at),
        "failed_at": stamp(job.failed_at),
    }


def _same(value: str | None, url: str | None, shown: str | None) -> str | None:
    # A work without an id has its URL as id, which may contain a secret.
    return shown if value == url else safe_field(value)


def artifact_view(artifact: Artifact) -> View:
    """Show an artifact without its storage location."""
    return {
        "artifact_id": artifact.artifact_id,
        "artifact_type": artifact.artifact_type,
        "content_type": artifact.content_type,
        "size_bytes": artifact.size_bytes,
        "sha256": artifact.sha256,
        "name": safe_field(artifact.name),
        "schema_version": artifact.schema_version,
        "metadata": artifact.metadata,
        "created_at": stamp(artifact.created_at),
        "created_by_job_id": artifact.created_by_job_id,
        "availability": artifact.availability,
        "previous_id": artifact.previous_id,
    }


def run_view(run: Run) -> View:
    """Show a run."""
    return {
        "run_id": run.run_id,
        "jobs": run.jobs,
        "missing": run.missing,
        "artifacts": run.artifacts,
        "bytes": run.bytes,
        "begun_at": stamp(run.begun_at),
        "ended_at": stamp(run.ended_at),
    }


def token_view(token: Token) -> View:
    """Show a token; the record does not contain the secret."""
    return {
        "token_id": token.token_id,
        "name": token.name,
        "tenant_id": token.scope.tenant_id,
        "project_id": token.scope.project_id,
        "scopes": sorted(token.scopes),
        "created_at": stamp(token.created_at),
        "expires_at": stamp(token.expires_at),
        "revoked_at": stamp(token.revoked_at),
        "last_used_at": stamp(token.last_used_at),
    }


def span_s(start: Micros | None, end: Micros | None) -> float | None:
    """Return the duration; None while it is running."""
    return None if start is None or end is None else max(0, end - start) / SECOND


def remedy_of(reason: str | None) -> tuple[str, str]:
    """Return the meaning and the remedy of a reason."""
    if not reason:
        return "", ""
    try:
        known = reason_named(reason)
    except KeyError:
        return "", ""
    return known.meaning, known.remedy


def as_curl(job: Job) -> str | None:
    """Return a download as a curl command; None if the URL has a redacted secret."""
    url = job.request.url
    return f"curl --fail --location --remote-name {shlex.quote(safe_url(url))}" if url and says_all(url) else None


def as_cli(job: Job) -> str:
    """Return the command line that fetches a job or, if its URL has a redacted secret, shows it."""
    url = job.request.url
    if kind_of(job.job_type).of_url and url and says_all(url):
        return f"longshore get {shlex.quote(safe_url(url))}"
    return f"longshore show {job.job_id}"
