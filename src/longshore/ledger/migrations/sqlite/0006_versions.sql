-- What a URL gave belongs to the caller who asked: a hash of the request's own headers ('' without any, NULL if not known).
-- Versions of jobs that had headers were stored without it; they are kept as what the URL gave, but not reused.
ALTER TABLE url_versions ADD COLUMN caller TEXT;
ALTER TABLE url_versions ADD COLUMN vary TEXT;
UPDATE url_versions SET caller = '' WHERE NOT EXISTS (
  SELECT 1 FROM jobs AS j
   WHERE j.tenant_id = url_versions.tenant_id AND j.project_id = url_versions.project_id AND j.job_id = url_versions.job_id
     AND j.request LIKE '%"headers"%');
