"""Types of jobs as a platform declares them: codes of its own, required results, rows in its own tables."""

from __future__ import annotations

from typing import Any

import longshore
from longshore import Input, JobFailed, Result
from longshore.ledger.records import CompletedJob
from longshore.ledger.user_tables import UserTx

TABLES = """
CREATE TABLE transcripts (
  tenant_id     TEXT NOT NULL,
  project_id    TEXT NOT NULL,
  transcript_id TEXT NOT NULL,
  job_id        TEXT NOT NULL,
  artifact_id   TEXT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, transcript_id),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id),
  FOREIGN KEY (tenant_id, project_id, artifact_id) REFERENCES artifacts (tenant_id, project_id, artifact_id)
)
"""
INSERT = """
INSERT INTO transcripts (tenant_id, project_id, transcript_id, job_id, artifact_id)
VALUES (:tenant_id, :project_id, :transcript_id, :job_id, :artifact_id)
"""


@longshore.job_type("p_fail", max_attempts=2)
def fail(inputs: list[Input], params: dict[str, Any], ctx: Any) -> None:
    raise JobFailed("the model is busy", code=params["code"], retryable=params["retryable"])


@longshore.job_type("p_none", requires_results=True, max_attempts=2)
def none(inputs: list[Input], params: dict[str, Any], ctx: Any) -> object:
    return params.get("value")


@longshore.job_type("p_echo")
def echo(inputs: list[Input], params: dict[str, Any], ctx: Any) -> dict[str, Any]:
    return {"params": params, **_context(inputs, ctx)}


@longshore.job_type("p_async_echo")
async def async_echo(inputs: list[Input], params: dict[str, Any], ctx: Any) -> dict[str, Any]:
    return {"params": params, **_context(inputs, ctx)}


def _context(inputs: list[Input], ctx: Any) -> dict[str, Any]:
    return {
        "job": [ctx.tenant_id, ctx.project_id, ctx.job_id, ctx.run_id, ctx.request_id, ctx.attempt],
        "inputs": [[one.schema_version, one.metadata] for one in inputs],
    }


def record(tx: UserTx, done: CompletedJob) -> None:
    for result in done.results:
        row = {
            "tenant_id": done.tenant_id,
            "project_id": done.project_id,
            "transcript_id": result.metadata["transcript_id"],
            "job_id": done.job_id,
            "artifact_id": result.artifact_id,
        }
        tx.execute(INSERT, row)
    if done.request.params.get("raise"):
        raise ZeroDivisionError("secret-canary")


@longshore.job_type("p_transcribe", requires_results=True, on_completed=record, max_attempts=2)
def transcribe(inputs: list[Input], params: dict[str, Any], ctx: Any) -> Result:
    metadata = {"transcript_id": params["id"], "language": "en", "score": 0.5, "long": "x" * 300, "parts": [1, 2]}
    return Result("words " + params["id"], artifact_type="transcript", schema_version="2.0", metadata=metadata)
