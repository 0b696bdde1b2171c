-- What remains of a completed job's history when it was archived although its artifact lives on: one row here in place of its
-- events, grants and effects. The job's row stays, so that whatever refers to it keeps its target.
CREATE TABLE job_summaries (
  tenant_id   TEXT COLLATE "C" NOT NULL,
  project_id  TEXT COLLATE "C" NOT NULL,
  job_id      TEXT COLLATE "C" NOT NULL,
  facts       TEXT,                -- JSON: of the event that ended the job
  published   TEXT,                -- JSON: of its FINALIZE, such as the version that the server sent
  archived_at BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, job_id),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id) ON DELETE CASCADE
);
ALTER TABLE job_summaries ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_summaries FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_summaries USING (tenant_id = (SELECT current_tenant())) WITH CHECK (tenant_id = current_tenant());
CREATE POLICY dispatcher ON job_summaries TO longshore_dispatcher USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON job_summaries TO longshore_app, longshore_dispatcher;
