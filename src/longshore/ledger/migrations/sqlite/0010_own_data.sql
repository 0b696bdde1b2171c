-- Look-up by the user's own ids: the short scalars at the top level of an artifact's metadata, and of the parameters of jobs
-- of declared types. Numbers and booleans as JSON writes them.
CREATE TABLE artifact_metadata (
  tenant_id   TEXT NOT NULL,
  project_id  TEXT NOT NULL,
  name        TEXT NOT NULL,
  value       TEXT NOT NULL,
  artifact_id TEXT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, name, value, artifact_id),
  FOREIGN KEY (tenant_id, project_id, artifact_id) REFERENCES artifacts (tenant_id, project_id, artifact_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
-- Its foreign key, when an artifact is deleted.
CREATE INDEX artifact_metadata_artifact ON artifact_metadata (tenant_id, project_id, artifact_id);
CREATE TABLE job_params (
  tenant_id  TEXT NOT NULL,
  project_id TEXT NOT NULL,
  name       TEXT NOT NULL,
  value      TEXT NOT NULL,
  job_id     TEXT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, name, value, job_id),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
-- Its foreign key, when a job is purged.
CREATE INDEX job_params_job ON job_params (tenant_id, project_id, job_id);

-- What remains of a deleted artifact: what it was, who deleted it, and whether its bytes are gone, too.
CREATE TABLE artifact_tombstones (
  tenant_id         TEXT NOT NULL,
  project_id        TEXT NOT NULL,
  artifact_id       TEXT NOT NULL,
  artifact_type     TEXT NOT NULL,
  sha256            TEXT NOT NULL,
  byte_size         INTEGER NOT NULL,
  storage_pointer   TEXT NOT NULL,
  created_at        INTEGER NOT NULL,
  created_by_job_id TEXT NOT NULL,
  deleted_at        INTEGER NOT NULL,
  deleted_by        TEXT NOT NULL,
  why               TEXT,
  freed_at          INTEGER,        -- when nothing referred to the bytes any more and they were removed; NULL: to be looked at
  PRIMARY KEY (tenant_id, project_id, artifact_id)
) STRICT, WITHOUT ROWID;
-- Bytes that are still to be removed: a deletion that was interrupted is finished by the next one, or by `reconcile`.
CREATE INDEX artifact_tombstones_unfreed ON artifact_tombstones (tenant_id, project_id, sha256) WHERE freed_at IS NULL;

-- Purged jobs whose result is deleted.
CREATE INDEX tombstones_artifact ON tombstones (tenant_id, project_id, artifact_id) WHERE artifact_id IS NOT NULL;

-- Releases of a book that failed for good: starting one of them again is refused unless the caller insists.
CREATE TABLE failed_releases (
  tenant_id  TEXT NOT NULL,
  project_id TEXT NOT NULL,
  book_id    TEXT NOT NULL,
  media_type TEXT NOT NULL,
  release    TEXT NOT NULL,      -- the torrent's infohash; a hash of the source if it is not known
  job_id     TEXT NOT NULL,
  reason     TEXT NOT NULL,
  message    TEXT,
  failed_at  INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, project_id, book_id, media_type, release)
) STRICT, WITHOUT ROWID;

INSERT INTO artifact_metadata (tenant_id, project_id, name, value, artifact_id)
SELECT a.tenant_id, a.project_id, m.key, CASE m.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE CAST(m.atom AS TEXT) END,
       a.artifact_id
  FROM artifacts AS a, json_each(a.metadata) AS m
 WHERE a.metadata IS NOT NULL AND m.type IN ('text', 'integer', 'real', 'true', 'false')
   AND length(m.key) <= 100 AND length(m.atom) <= 200;
INSERT INTO job_params (tenant_id, project_id, name, value, job_id)
SELECT j.tenant_id, j.project_id, m.key, CASE m.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE CAST(m.atom AS TEXT) END,
       j.job_id
  FROM jobs AS j, json_each(j.request, '$.params') AS m
 WHERE j.job_type NOT IN ('download', 'torrent', 'upload') AND j.request IS NOT NULL
   AND m.type IN ('text', 'integer', 'real', 'true', 'false') AND length(m.key) <= 100 AND length(m.atom) <= 200;
