-- {manifest} --
SELECT j.job_id, j.job_type, j.status, j.stage, COALESCE(j.url, j.canonical_url), COALESCE(j.work_id, j.canonical_url),
       COALESCE(j.source_ref, j.canonical_url), a.artifact_id, a.sha256, a.byte_size, a.content_type, a.name,
       j.error_code, j.error_message_safe, j.attempts, j.created_at, j.completed_at,
       (SELECT e.facts FROM events e WHERE e.tenant_id = j.tenant_id AND e.project_id = j.project_id
           AND e.job_id = j.job_id AND e.kind = j.status ORDER BY e.seq DESC LIMIT 1),
       a.availability, j.request
  FROM jobs j
  LEFT JOIN job_artifacts r ON r.tenant_id = j.tenant_id AND r.project_id = j.project_id AND r.job_id = j.job_id
        AND r.role = 'result' AND r.ordinal = 0
  LEFT JOIN artifacts a ON a.tenant_id = r.tenant_id AND a.project_id = r.project_id AND a.artifact_id = r.artifact_id

-- manifest_of --
-- The given jobs in the manifest's format.
{manifest}
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id IN (SELECT value FROM {each job_ids})

-- manifest_page --
-- Jobs with their first result and the final event of their last attempt, in order of planning.
{manifest}
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id > :after
   AND (CAST(:status AS TEXT) IS NULL OR j.status = :status)
   AND (CAST(:job_type AS TEXT) IS NULL OR j.job_type = :job_type)
   AND j.created_at >= :since AND j.superseded <= :superseded
 ORDER BY j.job_id LIMIT :many

-- manifest_more --
-- The further results of jobs that have several.
SELECT r.job_id, a.artifact_id, a.sha256, a.byte_size, a.content_type, a.name, a.availability
  FROM job_artifacts r
  JOIN artifacts a ON a.tenant_id = r.tenant_id AND a.project_id = r.project_id AND a.artifact_id = r.artifact_id
 WHERE r.tenant_id = :tenant_id AND r.project_id = :project_id AND r.job_id IN (SELECT value FROM {each job_ids})
   AND r.role = 'result' AND r.ordinal > 0
 ORDER BY r.job_id, r.ordinal

-- {unused} --
(j.status = 'completed' OR j.status = 'failed' OR j.status = 'skipped' OR j.status = 'canceled')
   AND j.updated_at < :before
   AND NOT EXISTS (SELECT 1 FROM artifacts a WHERE a.tenant_id = j.tenant_id AND a.project_id = j.project_id
     AND a.created_by_job_id = j.job_id)
   AND NOT EXISTS (SELECT 1 FROM media_assets m WHERE m.tenant_id = j.tenant_id AND m.project_id = j.project_id
     AND m.job_id = j.job_id)

-- purge_page --
-- Jobs of one status, among the next `scan` of them, that ended before a time and are not referenced by an artifact,
-- another job or an asset. Pending jobs are never read.
SELECT j.job_id, j.status, j.seq, j.retry_of, j.reuse_of_job_id
  FROM (SELECT * FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND i.status = :status
           AND i.seq > :edge ORDER BY i.seq LIMIT :scan) AS j
 WHERE {unused}
   AND NOT EXISTS (SELECT 1 FROM jobs k WHERE k.tenant_id = j.tenant_id AND k.project_id = j.project_id
     AND k.retry_of = j.job_id)
   AND NOT EXISTS (SELECT 1 FROM jobs k WHERE k.tenant_id = j.tenant_id AND k.project_id = j.project_id
     AND k.reuse_of_job_id = j.job_id)
 ORDER BY j.seq

-- purge_older --
-- The given jobs that are over and referenced only by other jobs, with the jobs they reference themselves.
SELECT j.job_id, j.retry_of, j.reuse_of_job_id FROM {each job_ids} AS w CROSS JOIN jobs j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = w.value AND {unused}

-- purge_older @postgres --
SELECT j.job_id, j.retry_of, j.reuse_of_job_id FROM jobs j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id
   AND j.job_id IN (SELECT value FROM {each job_ids}) AND {unused}

-- purge_pointing --
-- The jobs that reference the given jobs, and whether those can be purged as well.
SELECT j.retry_of, j.job_id, j.status, j.seq, CASE WHEN {unused} THEN 1 ELSE 0 END
  FROM {each job_ids} AS w CROSS JOIN jobs j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.retry_of = w.value
UNION ALL
SELECT j.reuse_of_job_id, j.job_id, j.status, j.seq, CASE WHEN {unused} THEN 1 ELSE 0 END
  FROM {each job_ids} AS w CROSS JOIN jobs j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.reuse_of_job_id = w.value
 LIMIT :many

-- purge_pointing @postgres --
SELECT j.retry_of, j.job_id, j.status, j.seq, CASE WHEN {unused} THEN 1 ELSE 0 END FROM jobs j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.retry_of IN (SELECT value FROM {each job_ids})
UNION ALL
SELECT j.reuse_of_job_id, j.job_id, j.status, j.seq, CASE WHEN {unused} THEN 1 ELSE 0 END FROM jobs j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.reuse_of_job_id IN (SELECT value FROM {each job_ids})
 LIMIT :many

-- purge_rows --
-- The given jobs that can still be purged: not used again since the page was read.
-- (A cross join keeps the order: without statistics SQLite would walk over every job that is over, in every batch.)
SELECT j.job_id, j.status FROM {each job_ids} AS w CROSS JOIN jobs j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = w.value AND {unused}

-- purge_rows @postgres --
-- Locked, so that no other transaction can add a reference. Rows that are locked now are left to the next purge.
SELECT j.job_id, j.status FROM jobs j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id
   AND j.job_id IN (SELECT value FROM {each job_ids}) AND {unused}
 ORDER BY j.job_id FOR UPDATE OF j SKIP LOCKED

-- purge_bury (now, tenant_id, project_id, job_id) --
-- The tombstone keeps the key with the job's final status and its artifact.
INSERT INTO tombstones (tenant_id, project_id, job_type, idempotency_key, job_id, status, stage, artifact_id, purged_at)
SELECT j.tenant_id, j.project_id, j.job_type, j.idempotency_key, j.job_id, j.status, j.stage,
       (SELECT r.artifact_id FROM job_artifacts r WHERE r.tenant_id = j.tenant_id AND r.project_id = j.project_id
          AND r.job_id = j.job_id AND r.role = 'result' AND r.ordinal = 0), :now
  FROM jobs j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = :job_id
   AND j.idempotency_key IS NOT NULL AND j.superseded = 0
ON CONFLICT (tenant_id, project_id, job_type, idempotency_key) DO UPDATE
   SET job_id = excluded.job_id, status = excluded.status, stage = excluded.stage, artifact_id = excluded.artifact_id,
       purged_at = excluded.purged_at

-- purge_links (tenant_id, project_id, job_id) --
DELETE FROM job_artifacts WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id

-- purge_events (tenant_id, project_id, job_id) --
DELETE FROM events WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id

-- purge_jobs --
-- In one statement, because the jobs may reference each other. Grants and effects are deleted with their job; any other
-- reference makes the statement fail, as intended.
DELETE FROM jobs WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id IN (SELECT value FROM {each job_ids})
