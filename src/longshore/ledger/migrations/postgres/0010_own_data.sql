-- Look-up by the user's own ids: the short scalars at the top level of an artifact's metadata, and of the parameters of jobs
-- of declared types. Numbers and booleans as JSON writes them.
CREATE TABLE artifact_metadata (
  tenant_id   TEXT COLLATE "C" NOT NULL,
  project_id  TEXT COLLATE "C" NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  value       TEXT COLLATE "C" NOT NULL,
  artifact_id TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant_id, project_id, name, value, artifact_id),
  FOREIGN KEY (tenant_id, project_id, artifact_id) REFERENCES artifacts (tenant_id, project_id, artifact_id) ON DELETE CASCADE
);
-- Its foreign key, when an artifact is deleted.
CREATE INDEX artifact_metadata_artifact ON artifact_metadata (artifact_id, tenant_id, project_id);
CREATE TABLE job_params (
  tenant_id  TEXT COLLATE "C" NOT NULL,
  project_id TEXT COLLATE "C" NOT NULL,
  name       TEXT COLLATE "C" NOT NULL,
  value      TEXT COLLATE "C" NOT NULL,
  job_id     TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant_id, project_id, name, value, job_id),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id) ON DELETE CASCADE
);
-- Its foreign key, when a job is purged.
CREATE INDEX job_params_job ON job_params (job_id, tenant_id, project_id);

-- What remains of a deleted artifact: what it was, who deleted it, and whether its bytes are gone, too.
CREATE TABLE artifact_tombstones (
  tenant_id         TEXT COLLATE "C" NOT NULL,
  project_id        TEXT COLLATE "C" NOT NULL,
  artifact_id       TEXT COLLATE "C" NOT NULL,
  artifact_type     TEXT COLLATE "C" NOT NULL,
  sha256            TEXT COLLATE "C" NOT NULL,
  byte_size         BIGINT NOT NULL,
  storage_pointer   TEXT NOT NULL,
  created_at        BIGINT NOT NULL,
  created_by_job_id TEXT COLLATE "C" NOT NULL,
  deleted_at        BIGINT NOT NULL,
  deleted_by        TEXT NOT NULL,
  why               TEXT,
  freed_at          BIGINT,        -- when nothing referred to the bytes any more and they were removed; NULL: to be looked at
  PRIMARY KEY (tenant_id, project_id, artifact_id)
);
-- Bytes that are still to be removed: a deletion that was interrupted is finished by the next one, or by `reconcile`.
CREATE INDEX artifact_tombstones_unfreed ON artifact_tombstones (sha256, tenant_id, project_id) WHERE freed_at IS NULL;

-- Purged jobs whose result is deleted.
CREATE INDEX tombstones_artifact ON tombstones (artifact_id, tenant_id, project_id) WHERE artifact_id IS NOT NULL;

-- Releases of a book that failed for good: starting one of them again is refused unless the caller insists.
CREATE TABLE failed_releases (
  tenant_id  TEXT COLLATE "C" NOT NULL,
  project_id TEXT COLLATE "C" NOT NULL,
  book_id    TEXT COLLATE "C" NOT NULL,
  media_type TEXT COLLATE "C" NOT NULL,
  release    TEXT COLLATE "C" NOT NULL,      -- the torrent's infohash; a hash of the source if it is not known
  job_id     TEXT COLLATE "C" NOT NULL,
  reason     TEXT COLLATE "C" NOT NULL,
  message    TEXT,
  failed_at  BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, book_id, media_type, release)
);

DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['artifact_metadata', 'job_params', 'artifact_tombstones', 'failed_releases'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY tenant ON %I USING (tenant_id = (SELECT current_tenant())) WITH CHECK (tenant_id = current_tenant())', name);
    EXECUTE format('CREATE POLICY dispatcher ON %I TO longshore_dispatcher USING (true) WITH CHECK (true)', name);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO longshore_app, longshore_dispatcher', name);
  END LOOP;
END $$;

-- The owner sees all tenants only while the policies are not forced on it.
ALTER TABLE artifacts NO FORCE ROW LEVEL SECURITY;
ALTER TABLE jobs NO FORCE ROW LEVEL SECURITY;
INSERT INTO artifact_metadata (tenant_id, project_id, name, value, artifact_id)
SELECT a.tenant_id, a.project_id, m.key, m.value #>> '{}', a.artifact_id
  FROM artifacts AS a CROSS JOIN LATERAL jsonb_each(CAST(a.metadata AS jsonb)) AS m (key, value)
 WHERE a.metadata IS NOT NULL AND a.metadata NOT LIKE '%\u0000%'
   AND jsonb_typeof(m.value) IN ('string', 'number', 'boolean') AND length(m.key) <= 100 AND length(m.value #>> '{}') <= 200;
INSERT INTO job_params (tenant_id, project_id, name, value, job_id)
SELECT j.tenant_id, j.project_id, m.key, m.value #>> '{}', j.job_id
  FROM jobs AS j CROSS JOIN LATERAL jsonb_each(CAST(j.request AS jsonb) -> 'params') AS m (key, value)
 WHERE j.job_type NOT IN ('download', 'torrent', 'upload') AND j.request LIKE '%"params"%' AND j.request NOT LIKE '%\u0000%'
   AND jsonb_typeof(m.value) IN ('string', 'number', 'boolean') AND length(m.key) <= 100 AND length(m.value #>> '{}') <= 200;
ALTER TABLE artifacts FORCE ROW LEVEL SECURITY;
ALTER TABLE jobs FORCE ROW LEVEL SECURITY;
ALTER TABLE artifact_metadata FORCE ROW LEVEL SECURITY;
ALTER TABLE job_params FORCE ROW LEVEL SECURITY;
ALTER TABLE artifact_tombstones FORCE ROW LEVEL SECURITY;
ALTER TABLE failed_releases FORCE ROW LEVEL SECURITY;

-- For tables of the user's own with a column tenant_id: the same protection as the ledger's. Call it as the table's owner.
CREATE FUNCTION protect_table(p_table regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', p_table);
  EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', p_table);
  EXECUTE format('DROP POLICY IF EXISTS tenant ON %s', p_table);
  EXECUTE format('CREATE POLICY tenant ON %s USING (tenant_id = (SELECT current_tenant())) WITH CHECK (tenant_id = current_tenant())', p_table);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO longshore_app', p_table);
END $$;
