-- The jobs of a run; jobs without one do not pay for it. (A name may be longer than an index entry: see 0004.)
ALTER TABLE jobs ADD COLUMN run_hash BYTEA GENERATED ALWAYS AS (text_hash(run_id)) STORED;
CREATE INDEX jobs_run ON jobs (tenant_id, project_id, run_hash, status, seq) WHERE run_hash IS NOT NULL;
-- Large bodies under way: who fetches a URL now. Small bodies never have this stage.
CREATE INDEX jobs_streaming ON jobs (tenant_id, project_id) WHERE stage = 'STREAMING';
-- Times of the view as text: ISO 8601, UTC.
DROP VIEW download_jobs;
CREATE VIEW download_jobs WITH (security_invoker = true) AS
  SELECT job_id AS id, user_id, book_id, media_type, stage AS status, source, external_job_id,
         to_char(TIMESTAMP '1970-01-01' + created_at * INTERVAL '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS created_at_utc,
         to_char(TIMESTAMP '1970-01-01' + updated_at * INTERVAL '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS updated_at_utc,
         to_char(TIMESTAMP '1970-01-01' + completed_at * INTERVAL '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS completed_at_utc,
         to_char(TIMESTAMP '1970-01-01' + first_not_found_at * INTERVAL '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
           AS first_not_found_at_utc,
         failure_reason, row_version, tenant_id, project_id
    FROM jobs WHERE job_type = 'torrent';
GRANT SELECT ON download_jobs TO longshore_app;
