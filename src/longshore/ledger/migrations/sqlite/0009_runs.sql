-- The jobs of a run; jobs without one do not pay for it.
CREATE INDEX jobs_run ON jobs (tenant_id, project_id, run_id, status) WHERE run_id IS NOT NULL;
-- Large bodies under way: who fetches a URL now. Small bodies never have this stage.
CREATE INDEX jobs_streaming ON jobs (tenant_id, project_id) WHERE stage = 'STREAMING';
