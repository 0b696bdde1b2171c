-- A torrent that finished before a poll saw it downloading is imported as it stands: it keeps its lease while it is
-- still queued, and begins and ends in the transaction that completes it. A check that gets weaker touches no row, so
-- only its text changes (sqlite.org/lang_altertable.html, section 7); the new index below makes every connection read
-- the schema again.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema
   SET sql = replace(sql,
     'CHECK (lease_owner IS NULL OR (status = ''processing'' AND lease_epoch > 0))',
     'CHECK (lease_owner IS NULL OR (lease_epoch > 0 AND (status = ''processing'' OR (job_type = ''torrent'' AND status = ''pending''))))')
 WHERE type = 'table' AND name = 'jobs';
PRAGMA writable_schema = RESET;

-- The asset that a job brought: its files are the job's results.
CREATE INDEX media_assets_job ON media_assets (tenant_id, project_id, job_id);
