-- Lists that are full at once: failures by reason and host, those that were tried again apart; and the types that are
-- a handful among millions of downloads, which do not pay for it.
DROP INDEX jobs_failed;
CREATE INDEX jobs_failed ON jobs (error_code, host, superseded, tenant_id, project_id, seq) WHERE status = 'failed';
CREATE INDEX jobs_typed ON jobs (job_type, status, tenant_id, project_id, seq) WHERE job_type <> 'download';
-- A column of its own instead of an expression: under row-level security the planner may not look into an index by a
-- function that is not known to keep secrets, and read every job to find those of one work.
DROP INDEX jobs_work;
ALTER TABLE jobs ADD COLUMN work_hash BYTEA GENERATED ALWAYS AS (text_hash(work_id)) STORED;
CREATE INDEX jobs_work ON jobs (work_hash, tenant_id, project_id, seq) WHERE work_hash IS NOT NULL;
