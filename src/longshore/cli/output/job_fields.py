"""The fields of a job in `jobs --json` and `show --json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from longshore.cli.output.writer import moment
from longshore.domain.policy.redaction import safe_field, safe_url

if TYPE_CHECKING:
    from longshore.domain.model import Job

_HELD: Final = frozenset({"completed", "skipped"})


def job_facts(job: Job, *, is_lost: bool = False) -> dict[str, Any]:
    """Return the fields of a job's line; `is_lost`: bytes of its result are."""
    request = job.request
    return {
        "job_id": job.job_id,
        "status": job.status.value,
        "stage": job.stage,
        "url": safe_url(request.url) if request.url else None,
        "reason": job.reason,
        "message": job.message,
        "debug_id": job.debug_id,
        "job_type": job.job_type,
        "attempts": job.attempts,
        "work_id": safe_field(request.work_id),
        "source_ref": safe_field(request.source_ref),
        "priority": job.priority,
        "progress": job.progress,
        "bytes_done": job.bytes_done,
        "bytes_total": job.bytes_total,
        "created_at": moment(job.created_at),
        "updated_at": moment(job.updated_at),
        "completed_at": _moment(job.completed_at),
        "failed_at": _moment(job.failed_at),
        "next_attempt_at": _moment(job.next_attempt_at),
        "reuse_of_job_id": job.reuse_of_job_id,
        "retry_of": job.retry_of,
        "run_id": request.run_id,
        "request_id": request.request_id,
        "input_artifacts": list(request.inputs),
        "result_artifacts": list(job.results),
        "tenant_id": job.scope.tenant_id,
        "project_id": job.scope.project_id,
        "availability": ("missing" if is_lost else "available") if job.status in _HELD else None,
    }


def _moment(micros: int | None) -> str | None:
    return moment(micros) if micros is not None else None
