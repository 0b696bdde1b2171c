"""A compliance or RAG platform: typed jobs whose results have rows in the platform's own tables, with ids of its own."""

from __future__ import annotations

from typing import Any

import longshore
from longshore import ArtifactFilter, Input, JobFailed, Result

TABLES = """CREATE TABLE IF NOT EXISTS transcripts (
  tenant_id TEXT NOT NULL, project_id TEXT NOT NULL, transcript_id TEXT NOT NULL, job_id TEXT NOT NULL,
  artifact_id TEXT NOT NULL, PRIMARY KEY (tenant_id, project_id, transcript_id),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id) ON DELETE CASCADE,
  FOREIGN KEY (tenant_id, project_id, artifact_id) REFERENCES artifacts (tenant_id, project_id, artifact_id) ON DELETE CASCADE)"""
ROW = """INSERT INTO transcripts (tenant_id, project_id, transcript_id, job_id, artifact_id)
  VALUES (:tenant_id, :project_id, :transcript_id, :job_id, :artifact_id)"""


def record(tx: Any, done: Any) -> None:
    """Write the platform's row in the transaction that completes the job."""
    row = {"tenant_id": done.tenant_id, "project_id": done.project_id, "job_id": done.job_id}
    for one in done.results:
        tx.execute(ROW, {**row, "transcript_id": one.metadata["transcript_id"], "artifact_id": one.artifact_id})


@longshore.job_type("transcribe", requires_results=True, on_completed=record)
def transcribe(inputs: list[Input], params: dict[str, Any], ctx: Any) -> Result:
    words = inputs[0].read_text()
    if not words.strip():
        raise JobFailed("the recording is silent", code="recording.silent", retryable=False)
    labels = {"transcript_id": params["transcript_id"], "temperature": params["temperature"], "tenant": ctx.tenant_id}
    return Result(words.upper(), artifact_type="transcript", schema_version="1.0", metadata=labels)


def transcript(depot: longshore.Depot, transcript_id: str, scope: longshore.Scope) -> longshore.Artifact:
    """Find a transcript by the platform's own id."""
    (found,) = depot.artifacts(ArtifactFilter(metadata={"transcript_id": transcript_id}), scope=scope)
    return found
