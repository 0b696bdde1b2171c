-- The jobs of a run; jobs without one do not pay for it.
CREATE INDEX jobs_run ON jobs (tenant_id, project_id, run_id, status) WHERE run_id IS NOT NULL;
-- Large bodies under way: who fetches a URL now. Small bodies never have this stage.
CREATE INDEX jobs_streaming ON jobs (tenant_id, project_id) WHERE stage = 'STREAMING';
-- Times of the view as text: ISO 8601, UTC.
DROP VIEW download_jobs;
CREATE VIEW download_jobs AS
  SELECT job_id AS id, user_id, book_id, media_type, stage AS status, source, external_job_id,
         strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at_utc,
         strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch') || printf('.%06dZ', updated_at % 1000000) AS updated_at_utc,
         strftime('%Y-%m-%dT%H:%M:%S', completed_at / 1000000, 'unixepoch') || printf('.%06dZ', completed_at % 1000000) AS completed_at_utc,
         strftime('%Y-%m-%dT%H:%M:%S', first_not_found_at / 1000000, 'unixepoch') || printf('.%06dZ', first_not_found_at % 1000000)
           AS first_not_found_at_utc,
         failure_reason, row_version, tenant_id, project_id
    FROM jobs WHERE job_type = 'torrent';
