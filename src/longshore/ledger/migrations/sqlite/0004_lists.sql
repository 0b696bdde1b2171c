-- Lists that are full at once: failures by reason and host, those that were tried again apart; and the types that are
-- a handful among millions of downloads, which do not pay for it.
DROP INDEX jobs_failed;
CREATE INDEX jobs_failed ON jobs (tenant_id, project_id, error_code, host, superseded) WHERE status = 'failed';
CREATE INDEX jobs_typed ON jobs (tenant_id, project_id, job_type, status) WHERE job_type <> 'download';
