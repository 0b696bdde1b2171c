-- Why jobs wait.

-- waits_each --
-- Jobs that are not over and not leased, with what holds their lane back.
SELECT j.job_id, j.host, j.ready, j.next_attempt_at, j.error_code, j.attempts, l.parked_until, j.lane_id, j.priority, j.seq
  FROM {each job_ids} AS w CROSS JOIN jobs AS j LEFT JOIN lanes AS l ON l.lane_id = j.lane_id
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = w.value AND j.lease_owner IS NULL
   AND (j.status = 'pending' OR j.status = 'processing')

-- waits_each @postgres --
SELECT j.job_id, j.host, j.ready, j.next_attempt_at, j.error_code, j.attempts, l.parked_until, j.lane_id, j.priority, j.seq
  FROM jobs AS j LEFT JOIN lanes AS l ON l.lane_id = j.lane_id
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id IN (SELECT value FROM {each job_ids})
   AND j.lease_owner IS NULL AND j.status IN ('pending', 'processing')

-- jobs_ahead --
-- How many jobs of a lane are taken before one, as far as they are counted: two ranges of the index jobs_ready.
SELECT count(*) FROM (
  SELECT seq FROM (SELECT a.seq FROM jobs AS a WHERE a.lane_id = :lane_id AND a.ready = 1 AND a.priority > :priority LIMIT :many) AS higher
  UNION ALL
  SELECT seq FROM (SELECT b.seq FROM jobs AS b WHERE b.lane_id = :lane_id AND b.ready = 1 AND b.priority = :priority
                      AND b.seq < :seq LIMIT :many) AS earlier) AS found
