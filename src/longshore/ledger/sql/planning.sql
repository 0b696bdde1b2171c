-- {job} --
j.seq, j.tenant_id, j.project_id, j.job_id, j.job_type, j.status, j.stage, j.progress, j.bytes_done,
j.bytes_total, j.priority, j.attempts, j.claims,
j.lease_owner, j.lease_until, j.lease_epoch, j.row_version, j.next_attempt_at, j.cancel_requested_at, j.error_code,
j.error_message_safe, j.error_debug_id, j.reuse_of_job_id, j.retry_of, j.external_job_id, j.created_at, j.updated_at,
j.completed_at, j.failed_at, j.idempotency_key, j.work_id, j.source_ref, j.url, j.canonical_url, j.host, j.request,
j.max_attempts, j.run_id, j.request_id, j.user_id, j.book_id, j.media_type, j.source, j.lane_id, j.trail

-- plan_find --
-- The current jobs of a list of keys. CROSS JOIN makes the keys the outer loop, whatever the statistics are.
SELECT j.idempotency_key, j.job_id, j.status, j.stage, j.seq, j.request
  FROM {each keys} AS k
  CROSS JOIN jobs AS j ON j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_type = :job_type
   AND j.idempotency_key = k.value AND j.superseded = 0

-- plan_find @postgres --
SELECT j.idempotency_key, j.job_id, j.status, j.stage, j.seq, j.request
  FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_type = :job_type AND j.superseded = 0
   AND j.idempotency_key = ANY (ARRAY(SELECT value FROM {each keys}))

-- plan_results --
-- The first registered result of completed jobs.
SELECT r.job_id, a.sha256, a.byte_size, a.content_type
  FROM {each job_ids} AS k
  CROSS JOIN job_artifacts AS r ON r.tenant_id = :tenant_id AND r.project_id = :project_id AND r.job_id = k.value
   AND r.role = 'result' AND r.ordinal = 0
  JOIN artifacts AS a ON a.tenant_id = r.tenant_id AND a.project_id = r.project_id AND a.artifact_id = r.artifact_id

-- plan_results @postgres --
SELECT r.job_id, a.sha256, a.byte_size, a.content_type
  FROM job_artifacts AS r
  JOIN artifacts AS a ON a.tenant_id = r.tenant_id AND a.project_id = r.project_id AND a.artifact_id = r.artifact_id
 WHERE r.tenant_id = :tenant_id AND r.project_id = :project_id AND r.role = 'result' AND r.ordinal = 0
   AND r.job_id = ANY (ARRAY(SELECT value FROM {each job_ids}))

-- plan_any_tombstone --
SELECT 1 FROM tombstones WHERE tenant_id = :tenant_id AND project_id = :project_id LIMIT 1

-- plan_tombstones --
-- Tombstones of purged jobs, so that their keys are still found.
SELECT idempotency_key, job_id, status, stage
  FROM tombstones
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_type = :job_type
   AND idempotency_key IN (SELECT value FROM {each keys})

-- plan_earlier --
-- For failed jobs: the earlier jobs along the retry chain whose results still exist.
WITH RECURSIVE c (start, job_id, depth) AS (
  SELECT value, value, 0 FROM {each job_ids}
  UNION ALL
  SELECT c.start, j.retry_of, c.depth + 1 FROM c
    CROSS JOIN jobs AS j ON j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = c.job_id
   WHERE j.retry_of IS NOT NULL AND c.depth < 50)
SELECT c.start, j.job_id, j.status, j.stage, j.request
  FROM c
  CROSS JOIN jobs AS j ON j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = c.job_id
 WHERE c.depth > 0
   AND EXISTS (SELECT 1 FROM job_artifacts AS r
                 CROSS JOIN artifacts AS a ON a.tenant_id = r.tenant_id AND a.project_id = r.project_id AND a.artifact_id = r.artifact_id
                WHERE r.tenant_id = :tenant_id AND r.project_id = :project_id AND r.job_id = c.job_id
                  AND r.role = 'result' AND a.availability = 'available')
 ORDER BY c.start, c.depth

-- plan_earlier @postgres --
WITH RECURSIVE c (start, job_id, depth) AS (
  SELECT value COLLATE "C", value COLLATE "C", 0 FROM {each job_ids}
  UNION ALL
  SELECT c.start, j.retry_of, c.depth + 1 FROM c
    JOIN jobs AS j ON j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = c.job_id
   WHERE j.retry_of IS NOT NULL AND c.depth < 50)
SELECT c.start, j.job_id, j.status, j.stage, j.request
  FROM c
  JOIN jobs AS j ON j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = c.job_id
 WHERE c.depth > 0
   AND EXISTS (SELECT 1 FROM job_artifacts AS r
                 JOIN artifacts AS a ON a.tenant_id = r.tenant_id AND a.project_id = r.project_id AND a.artifact_id = r.artifact_id
                WHERE r.tenant_id = :tenant_id AND r.project_id = :project_id AND r.job_id = c.job_id
                  AND r.role = 'result' AND a.availability = 'available')
 ORDER BY c.start, c.depth

-- plan_forget_tombstone (tenant_id, project_id, job_type, idempotency_key) --
DELETE FROM tombstones
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_type = :job_type AND idempotency_key = :idempotency_key

-- plan_supersede (now, seq) --
-- A linked retry takes the key over; the old row leaves the unique index.
UPDATE jobs SET superseded = 1, updated_at = :now, row_version = row_version + 1 WHERE seq = :seq

-- plan_insert (tenant_id, project_id, job_id, job_type, stage, ready, lane_id, priority, now, idempotency_key, work_id, source_ref, url, canonical_url, host, request, max_attempts, run_id, request_id, retry_of, user_id, book_id, media_type, source) --
INSERT INTO jobs (tenant_id, project_id, job_id, job_type, status, stage, ready, lane_id, priority, created_at, updated_at,
  idempotency_key, work_id, source_ref, url, canonical_url, host, request, max_attempts, run_id, request_id, retry_of,
  user_id, book_id, media_type, source)
VALUES (:tenant_id, :project_id, :job_id, :job_type, 'pending', :stage, :ready, :lane_id, :priority, :now, :now,
  :idempotency_key, :work_id, :source_ref, :url, :canonical_url, :host, :request, :max_attempts, :run_id, :request_id,
  :retry_of, :user_id, :book_id, :media_type, :source)

-- plan_label (tenant_id, project_id, name, value, job_id) --
-- What a job of a declared type can be looked up by.
INSERT INTO job_params (tenant_id, project_id, name, value, job_id)
VALUES (:tenant_id, :project_id, :name, :value, :job_id)

-- plan_inputs (tenant_id, project_id, job_id, ordinal, artifact_id) --
INSERT INTO job_artifacts (tenant_id, project_id, job_id, role, ordinal, artifact_id)
VALUES (:tenant_id, :project_id, :job_id, 'input', :ordinal, :artifact_id)

-- plan_known_artifacts --
SELECT artifact_id FROM artifacts
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND artifact_id IN (SELECT value FROM {each ids})

-- lane_put (tenant_id, project_id, host, job_type, ready, top) --
-- Make or mark a lane that gets ready jobs.
INSERT INTO lanes (tenant_id, project_id, host, job_type, ready, top)
VALUES (:tenant_id, :project_id, :host, :job_type, :ready, :top)
ON CONFLICT (tenant_id, project_id, host, job_type) DO UPDATE
   SET top = CASE WHEN lanes.ready = 1 AND lanes.top > excluded.top THEN lanes.top ELSE excluded.top END,
       ready = CASE WHEN excluded.ready = 1 THEN 1 ELSE lanes.ready END
RETURNING lane_id, host, job_type

-- lanes_standing @sqlite --
-- The lanes of a list of hosts, as they are marked now. (On PostgreSQL lanes_put looks before it writes.)
SELECT l.lane_id, l.host, l.job_type, l.ready, l.top
  FROM {each hosts} AS h
  CROSS JOIN lanes AS l ON l.tenant_id = :tenant_id AND l.project_id = :project_id AND l.host = h.value

-- lane_ready (top, lane_id) --
-- A known lane got a ready job.
UPDATE lanes
   SET top = CASE WHEN ready = 1 AND top > :top THEN top ELSE :top END, ready = 1
 WHERE lane_id = :lane_id

-- host_known (host, now) --
INSERT INTO hosts (host, updated_at) VALUES (:host, :now) ON CONFLICT (host) DO NOTHING

-- count_add (tenant_id, project_id, status, n) --
INSERT INTO counters (tenant_id, project_id, status, slot, n) VALUES (:tenant_id, :project_id, :status, 0, :n)
ON CONFLICT (tenant_id, project_id, status, slot) DO UPDATE SET n = counters.n + excluded.n
