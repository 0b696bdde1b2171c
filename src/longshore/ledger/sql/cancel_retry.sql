-- control_rows --
-- The columns of the given jobs that cancel and retry need.
SELECT j.job_id, j.seq, j.status, j.stage, j.lease_owner, j.cancel_requested_at
  FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id IN (SELECT value FROM {each job_ids})

-- cancel_request (now, seq) --
-- The job is running: ask its worker to stop.
UPDATE jobs SET cancel_requested_at = :now, updated_at = :now, row_version = row_version + 1
 WHERE seq = :seq AND cancel_requested_at IS NULL AND (status = 'processing' OR lease_owner IS NOT NULL)

-- cancel_now (now, seq) --
-- The job is not leased: cancel it at once.
UPDATE jobs
   SET status = 'canceled', stage = 'canceled', ready = 0, next_attempt_at = NULL, cancel_requested_at = :now,
       error_code = 'canceled', error_message_safe = 'canceled by request', updated_at = :now, row_version = row_version + 1
 WHERE seq = :seq AND lease_owner IS NULL AND status = 'pending'

-- retry_rows --
-- Of jobs without a key, only those that were not tried again: planning finds the current job of any other by its key.
SELECT {job} FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id IN (SELECT value FROM {each job_ids})
   AND j.status NOT IN ('pending', 'processing', 'completed', 'skipped')
   AND (j.superseded = 0 OR j.idempotency_key IS NOT NULL)
 ORDER BY j.seq

-- waiting_now (seq) --
-- A waiting job is tried at once.
UPDATE jobs SET next_attempt_at = NULL, ready = 1
 WHERE seq = :seq AND next_attempt_at IS NOT NULL
RETURNING lane_id, priority

-- waiting_because --
-- (The + makes SQLite start from the waiting rows, not the tenant.)
SELECT seq FROM jobs WHERE next_attempt_at IS NOT NULL AND error_code = :reason AND +tenant_id = :tenant_id AND project_id = :project_id

-- waiting_because @postgres --
SELECT seq FROM jobs WHERE next_attempt_at IS NOT NULL AND error_code = :reason AND tenant_id = :tenant_id AND project_id = :project_id

-- lanes_forgotten --
-- Lanes that have a ready job but are not marked ready: there must be none.
SELECT l.lane_id, (SELECT j.priority FROM jobs AS j WHERE j.lane_id = l.lane_id AND j.ready = 1
                    ORDER BY j.priority DESC, j.seq LIMIT 1)
  FROM lanes AS l
 WHERE l.ready = 0 AND EXISTS (SELECT 1 FROM jobs AS j WHERE j.lane_id = l.lane_id AND j.ready = 1)

-- jobs_forgotten --
-- Jobs that wait for nothing: neither ready, nor waiting, nor leased. There must be none.
SELECT j.seq, j.lane_id, j.priority
  FROM jobs AS j
 WHERE j.status = 'pending' AND j.ready = 0 AND j.next_attempt_at IS NULL AND j.job_type NOT IN (SELECT value FROM {each external})
 LIMIT :many

-- job_ready (seq) --
UPDATE jobs SET ready = 1 WHERE seq = :seq AND status = 'pending' AND lease_owner IS NULL AND next_attempt_at IS NULL

-- count_wrong --
-- How far the counters are off: actual and stored counts, in one query.
SELECT tenant_id, project_id, status, sum(n) FROM (
  SELECT tenant_id, project_id, status, count(*) AS n FROM jobs GROUP BY tenant_id, project_id, status
  UNION ALL SELECT tenant_id, project_id, 'artifacts', count(*) FROM artifacts GROUP BY tenant_id, project_id
  UNION ALL SELECT tenant_id, project_id, 'artifact_bytes', sum(byte_size) FROM artifacts GROUP BY tenant_id, project_id
  UNION ALL SELECT tenant_id, project_id, 'blobs', count(*) FROM blobs GROUP BY tenant_id, project_id
  UNION ALL SELECT tenant_id, project_id, 'blob_bytes', sum(byte_size) FROM blobs GROUP BY tenant_id, project_id
  UNION ALL SELECT tenant_id, project_id, status, -n FROM counters) AS both_counts
 GROUP BY tenant_id, project_id, status HAVING sum(n) <> 0
