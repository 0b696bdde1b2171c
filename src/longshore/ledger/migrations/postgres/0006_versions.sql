-- What a URL gave belongs to the caller who asked: a hash of the request's own headers ('' without any, NULL if not known).
-- Versions of jobs that had headers were stored without it; they are kept as what the URL gave, but not reused.
ALTER TABLE url_versions ADD COLUMN caller TEXT;
ALTER TABLE url_versions ADD COLUMN vary TEXT;
-- The owner sees all tenants only while the policies are not forced on it.
ALTER TABLE url_versions NO FORCE ROW LEVEL SECURITY;
ALTER TABLE jobs NO FORCE ROW LEVEL SECURITY;
UPDATE url_versions SET caller = '' WHERE NOT EXISTS (
  SELECT 1 FROM jobs AS j
   WHERE j.tenant_id = url_versions.tenant_id AND j.project_id = url_versions.project_id AND j.job_id = url_versions.job_id
     AND j.request LIKE '%"headers"%');
ALTER TABLE url_versions FORCE ROW LEVEL SECURITY;
ALTER TABLE jobs FORCE ROW LEVEL SECURITY;

-- How a COMMIT ended whose answer was lost: one row per connection, with the number of the last transaction that it
-- committed. The row is written by that transaction itself, so it is there exactly if the transaction is. Whoever asks
-- closes it: a COMMIT that the server reads only then fails. (Transaction ids cannot tell: after a crash or a promotion the
-- server hands the same ones out again.)
CREATE TABLE commits (
  session TEXT COLLATE "C" PRIMARY KEY,
  number  BIGINT NOT NULL,
  closed  INTEGER NOT NULL DEFAULT 0 CHECK (closed IN (0, 1)),
  at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
GRANT SELECT, INSERT, UPDATE, DELETE ON commits TO longshore_app;
