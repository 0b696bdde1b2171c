-- {manifest} --
SELECT j.job_id, j.job_type, j.status, j.stage, COALESCE(j.url, j.canonical_url), COALESCE(j.work_id, j.canonical_url),
       COALESCE(j.source_ref, j.canonical_url), a.artifact_id, a.sha256, a.byte_size, a.content_type, a.name,
       j.error_code, j.error_message_safe, j.attempts, j.created_at, j.completed_at,
       COALESCE((SELECT e.facts FROM events e WHERE e.tenant_id = j.tenant_id AND e.project_id = j.project_id
           AND e.job_id = j.job_id AND e.kind = j.status ORDER BY e.seq DESC LIMIT 1),
         (SELECT s.facts FROM job_summaries s WHERE s.tenant_id = j.tenant_id AND s.project_id = j.project_id
           AND s.job_id = j.job_id)),
       a.availability, j.host, j.run_id, j.tenant_id, j.project_id,
       COALESCE((SELECT f.request FROM effects f WHERE f.tenant_id = j.tenant_id AND f.project_id = j.project_id
           AND f.job_id = j.job_id AND f.kind = 'FINALIZE' ORDER BY f.epoch DESC LIMIT 1),
         (SELECT s.published FROM job_summaries s WHERE s.tenant_id = j.tenant_id AND s.project_id = j.project_id
           AND s.job_id = j.job_id)), j.request
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
   AND (CAST(:run_id AS TEXT) IS NULL OR j.run_id = :run_id)
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
