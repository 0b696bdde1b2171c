-- Purge: which finished jobs may be deleted, and their deletion.

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
-- The change feed needs to know of deleted artifacts for as long as a consumer may be behind.
DELETE FROM events
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND kind <> 'artifact_deleted'

-- purge_events (tenant_id, project_id, job_id) @sqlite --
-- The last event stays as well: SQLite would give its number again, and a reader that has seen it would miss the new one.
DELETE FROM events
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND kind <> 'artifact_deleted'
   AND seq < (SELECT max(seq) FROM events)

-- purge_jobs --
-- In one statement, because the jobs may reference each other. Grants and effects are deleted with their job; any other
-- reference makes the statement fail, as intended.
DELETE FROM jobs WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id IN (SELECT value FROM {each job_ids})

-- {live_history} --
j.status = 'completed' AND j.updated_at < :before
   AND NOT EXISTS (SELECT 1 FROM job_summaries s WHERE s.tenant_id = j.tenant_id AND s.project_id = j.project_id
     AND s.job_id = j.job_id)

-- archive_page --
-- Completed jobs, among the next `scan` of them, that ended before a time and whose history is not archived.
SELECT j.job_id
  FROM (SELECT * FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND i.status = :status
           AND i.seq > :edge ORDER BY i.seq LIMIT :scan) AS j
 WHERE {live_history}
 ORDER BY j.seq

-- archive_rows --
-- The given jobs whose history is still to be archived.
SELECT j.job_id FROM {each job_ids} AS w CROSS JOIN jobs j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = w.value AND {live_history}

-- archive_rows @postgres --
-- Locked, so that two purges do not archive one job.
SELECT j.job_id FROM jobs j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id
   AND j.job_id IN (SELECT value FROM {each job_ids}) AND {live_history}
 ORDER BY j.job_id FOR UPDATE OF j SKIP LOCKED

-- archive_summary (now, tenant_id, project_id, job_id) --
INSERT INTO job_summaries (tenant_id, project_id, job_id, facts, published, archived_at)
SELECT j.tenant_id, j.project_id, j.job_id,
       (SELECT e.facts FROM events e WHERE e.tenant_id = j.tenant_id AND e.project_id = j.project_id
           AND e.job_id = j.job_id AND e.kind = j.status ORDER BY e.seq DESC LIMIT 1),
       (SELECT f.request FROM effects f WHERE f.tenant_id = j.tenant_id AND f.project_id = j.project_id
           AND f.job_id = j.job_id AND f.kind = 'FINALIZE' ORDER BY f.epoch DESC LIMIT 1), :now
  FROM jobs j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = :job_id

-- archive_events (tenant_id, project_id, job_id) --
-- What says that an artifact was deleted stays.
DELETE FROM events WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND kind <> 'artifact_deleted'

-- archive_effects (tenant_id, project_id, job_id) --
DELETE FROM effects WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id

-- archive_grants (tenant_id, project_id, job_id) --
DELETE FROM job_claims WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id
