-- A torrent that finished before a poll saw it downloading is imported as it stands: it keeps its lease while it is
-- still queued, and begins and ends in the transaction that completes it.
ALTER TABLE jobs DROP CONSTRAINT jobs_lease_processing;
ALTER TABLE jobs ADD CONSTRAINT jobs_lease_processing CHECK (lease_owner IS NULL OR (lease_epoch > 0
  AND (status = 'processing' OR (job_type = 'torrent' AND status = 'pending'))));

-- The asset that a job brought: its files are the job's results.
CREATE INDEX media_assets_job ON media_assets (job_id, tenant_id, project_id);
