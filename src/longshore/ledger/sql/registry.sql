-- {artifact} --
a.tenant_id, a.project_id, a.artifact_id, a.artifact_type, a.storage_backend, a.storage_pointer, a.content_type, a.byte_size,
a.sha256, a.schema_version, a.name, a.metadata, a.created_at, a.created_by_job_id, a.previous_id, a.availability

-- artifact_mark (availability, tenant_id, project_id, artifact_id) --
UPDATE artifacts SET availability = :availability
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND artifact_id = :artifact_id AND availability <> :availability
RETURNING artifact_id, created_by_job_id

-- job_results --
-- The results of a job, in order.
SELECT {artifact}
  FROM job_artifacts AS r
  JOIN artifacts AS a ON a.tenant_id = r.tenant_id AND a.project_id = r.project_id AND a.artifact_id = r.artifact_id
 WHERE r.tenant_id = :tenant_id AND r.project_id = :project_id AND r.job_id = :job_id AND r.role = :role
 ORDER BY r.ordinal

-- result_ids --
-- The result ids of a page of jobs.
SELECT r.job_id, r.artifact_id FROM job_artifacts AS r
 WHERE r.tenant_id = :tenant_id AND r.project_id = :project_id AND r.job_id IN (SELECT value FROM {each job_ids})
   AND r.role = 'result'
 ORDER BY r.job_id, r.ordinal

-- job_row --
SELECT {job} FROM jobs AS j WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = :job_id

-- job_ids_like --
SELECT job_id FROM jobs
 WHERE tenant_id = :tenant_id AND project_id = :project_id
   AND (job_id LIKE :beginning OR job_id LIKE :ending)
 ORDER BY job_id LIMIT :many

-- job_stage --
SELECT stage FROM jobs WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id

-- counts --
SELECT status, sum(n) FROM counters WHERE tenant_id = :tenant_id AND project_id = :project_id GROUP BY status

-- url_versions (tenant_id, project_id, canonical_url) --
SELECT canonical_url, sha256, etag, last_modified, byte_size, seen_at, revalidated_at, artifact_id, job_id, final_url,
       caller, vary
  FROM url_versions
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND canonical_url = :canonical_url

-- held --
-- An available artifact of a hash, the oldest first.
SELECT {artifact}
  FROM artifacts AS a
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.sha256 = :sha256 AND a.availability = 'available'
 ORDER BY a.artifact_id LIMIT 1

-- held @sqlite --
-- The same; without statistics SQLite would walk the whole tenant in order of ids.
SELECT {artifact}
  FROM artifacts AS a INDEXED BY artifacts_sha256
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.sha256 = :sha256 AND a.availability = 'available'
 ORDER BY a.artifact_id LIMIT 1
