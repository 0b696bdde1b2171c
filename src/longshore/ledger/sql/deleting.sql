-- Deletion of artifacts: the rows, in one transaction; their bytes follow.

-- delete_rows --
SELECT a.artifact_id, a.artifact_type, a.sha256, a.byte_size, a.storage_pointer, a.created_at, a.created_by_job_id
  FROM artifacts AS a
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.artifact_id IN (SELECT value FROM {each artifact_ids})
 ORDER BY a.artifact_id

-- delete_rows @postgres --
-- Locked, so that no other transaction can add a reference.
SELECT a.artifact_id, a.artifact_type, a.sha256, a.byte_size, a.storage_pointer, a.created_at, a.created_by_job_id
  FROM artifacts AS a
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.artifact_id IN (SELECT value FROM {each artifact_ids})
 ORDER BY a.artifact_id FOR UPDATE OF a

-- delete_used --
-- Unfinished jobs that have one of these as input.
SELECT r.artifact_id, r.job_id FROM job_artifacts AS r
  JOIN jobs AS j ON j.tenant_id = r.tenant_id AND j.project_id = r.project_id AND j.job_id = r.job_id
 WHERE r.tenant_id = :tenant_id AND r.project_id = :project_id AND r.artifact_id IN (SELECT value FROM {each artifact_ids})
   AND r.role = 'input' AND (j.status = 'pending' OR j.status = 'processing')

-- delete_links --
-- Their jobs; the URL of those that fetched one.
SELECT r.artifact_id, r.job_id, r.role, j.canonical_url, j.status FROM job_artifacts AS r
  JOIN jobs AS j ON j.tenant_id = r.tenant_id AND j.project_id = r.project_id AND j.job_id = r.job_id
 WHERE r.tenant_id = :tenant_id AND r.project_id = :project_id AND r.artifact_id IN (SELECT value FROM {each artifact_ids})

-- delete_assets_of --
SELECT m.book_id, m.media_type FROM media_assets AS m
 WHERE m.tenant_id = :tenant_id AND m.project_id = :project_id AND m.job_id IN (SELECT value FROM {each job_ids})
 ORDER BY m.book_id, m.media_type

-- delete_asset (now, tenant_id, project_id, book_id, media_type) --
UPDATE media_assets SET status = 'removed', storage_path = NULL, artifact_id = NULL, updated_at = :now
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND book_id = :book_id AND media_type = :media_type

-- delete_version (tenant_id, project_id, canonical_url, artifact_id) --
DELETE FROM url_versions
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND canonical_url = :canonical_url AND artifact_id = :artifact_id

-- delete_version (tenant_id, project_id, canonical_url, artifact_id) @postgres --
DELETE FROM url_versions
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND url_hash = text_hash(:canonical_url)
   AND artifact_id = :artifact_id

-- delete_key (now, tenant_id, project_id, job_id) --
-- Asking for the same again makes a new job.
UPDATE jobs SET superseded = 1, updated_at = :now, row_version = row_version + 1
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND superseded = 0
   AND idempotency_key IS NOT NULL AND status IN ('completed', 'skipped')

-- delete_tombstone (tenant_id, project_id, artifact_id) --
DELETE FROM tombstones WHERE tenant_id = :tenant_id AND project_id = :project_id AND artifact_id = :artifact_id

-- delete_job_link (tenant_id, project_id, artifact_id) --
DELETE FROM job_artifacts WHERE tenant_id = :tenant_id AND project_id = :project_id AND artifact_id = :artifact_id

-- delete_artifact (tenant_id, project_id, artifact_id) --
DELETE FROM artifacts WHERE tenant_id = :tenant_id AND project_id = :project_id AND artifact_id = :artifact_id

-- delete_unheld --
-- The blobs among these to which no artifact refers any more.
SELECT b.sha256, b.byte_size FROM blobs AS b
 WHERE b.tenant_id = :tenant_id AND b.project_id = :project_id AND b.sha256 IN (SELECT value FROM {each sha256s})
   AND NOT EXISTS (SELECT 1 FROM artifacts AS a
     WHERE a.tenant_id = b.tenant_id AND a.project_id = b.project_id AND a.sha256 = b.sha256)

-- delete_blob (tenant_id, project_id, sha256) --
DELETE FROM blobs WHERE tenant_id = :tenant_id AND project_id = :project_id AND sha256 = :sha256

-- delete_note (tenant_id, project_id, artifact_id, artifact_type, sha256, byte_size, storage_pointer, created_at, created_by_job_id, now, deleted_by, why, freed_at) --
INSERT INTO artifact_tombstones (tenant_id, project_id, artifact_id, artifact_type, sha256, byte_size, storage_pointer,
  created_at, created_by_job_id, deleted_at, deleted_by, why, freed_at)
VALUES (:tenant_id, :project_id, :artifact_id, :artifact_type, :sha256, :byte_size, :storage_pointer,
  :created_at, :created_by_job_id, :now, :deleted_by, :why, :freed_at)

-- deleted_unfreed --
-- Deleted bytes whose files are still to be removed.
SELECT DISTINCT t.sha256, t.storage_pointer, t.byte_size FROM artifact_tombstones AS t
 WHERE t.tenant_id = :tenant_id AND t.project_id = :project_id AND t.freed_at IS NULL
 ORDER BY t.sha256 LIMIT :many

-- deleted_freed (freed_at, tenant_id, project_id, sha256) --
UPDATE artifact_tombstones SET freed_at = :freed_at
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND sha256 = :sha256 AND freed_at IS NULL

-- deleted_one --
SELECT t.artifact_id, t.artifact_type, t.sha256, t.byte_size, t.deleted_at, t.deleted_by, t.why, t.freed_at
  FROM artifact_tombstones AS t
 WHERE t.tenant_id = :tenant_id AND t.project_id = :project_id AND t.artifact_id = :artifact_id
