-- What remains of a completed job's history when it was archived although its artifact lives on: one row here in place of its
-- events, grants and effects. The job's row stays, so that whatever refers to it keeps its target.
CREATE TABLE job_summaries (
  tenant_id   TEXT NOT NULL,
  project_id  TEXT NOT NULL,
  job_id      TEXT NOT NULL,
  facts       TEXT,                -- JSON: of the event that ended the job
  published   TEXT,                -- JSON: of its FINALIZE, such as the version that the server sent
  archived_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, project_id, job_id),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
