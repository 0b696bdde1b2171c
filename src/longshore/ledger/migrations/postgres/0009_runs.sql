-- The jobs of a run; jobs without one do not pay for it. (A name may be longer than an index entry: see 0004.)
ALTER TABLE jobs ADD COLUMN run_hash BYTEA GENERATED ALWAYS AS (text_hash(run_id)) STORED;
CREATE INDEX jobs_run ON jobs (tenant_id, project_id, run_hash, status, seq) WHERE run_hash IS NOT NULL;
-- Large bodies under way: who fetches a URL now. Small bodies never have this stage.
CREATE INDEX jobs_streaming ON jobs (tenant_id, project_id) WHERE stage = 'STREAMING';
