-- {host} --
host, concurrency, rate_per_s, paused, cooldown_until, failures, failed_at, next_start_at, reason, silent_since, silences,
nameless_at, faulty_since, cooldown_tenant

-- host_row --
SELECT {host} FROM hosts WHERE host = :host

-- hosts_named --
SELECT {host} FROM hosts WHERE host IN (SELECT value FROM {each hosts})

-- hosts_silent --
-- Hosts that may have been given up: the table is small, and only recent failures count.
SELECT {host} FROM hosts WHERE ((silent_since IS NOT NULL OR faulty_since IS NOT NULL) AND failed_at > :after) OR nameless_at > :after

-- host_waiting --
-- Jobs that wait for a host and were planned before it was given up: ready ones of its lanes, and those with a time to wait.
SELECT {job} FROM jobs AS j
 WHERE j.seq IN (
   SELECT seq FROM (SELECT r.seq FROM lanes AS l CROSS JOIN jobs AS r ON r.lane_id = l.lane_id AND r.ready = 1
                     WHERE l.host = :host AND l.job_type = :job_type AND r.created_at <= :before LIMIT :many)
   UNION ALL
   SELECT seq FROM (SELECT w.seq FROM jobs AS w WHERE w.next_attempt_at IS NOT NULL AND w.host = :host
                       AND w.job_type = :job_type AND w.created_at <= :before LIMIT :many))
 ORDER BY j.seq
 LIMIT :many

-- host_waiting @postgres --
SELECT {job} FROM dispatch_host_waiting(:host, :before, :many) AS j

-- host_asked --
-- Jobs that were asked for at a host, were planned before it was found faulty and wait for another attempt.
SELECT {job} FROM jobs AS j
 WHERE j.next_attempt_at IS NOT NULL AND j.host = :host AND j.job_type = :job_type AND j.attempts > 0
   AND j.created_at <= :before
 ORDER BY j.next_attempt_at
 LIMIT :many

-- host_asked @postgres --
SELECT {job} FROM dispatch_host_asked(:host, :before, :many) AS j

-- host_jobs_move (ready, next_attempt_at, attempts, host, lane_id, trail, now, seq, lease_epoch) --
-- Move a job without a lease to another candidate's host.
UPDATE jobs
   SET ready = :ready, next_attempt_at = :next_attempt_at, attempts = attempts + :attempts, host = :host, lane_id = :lane_id,
       trail = NULLIF(:trail, ''), updated_at = :now, row_version = row_version + 1
 WHERE seq = :seq AND lease_epoch = :lease_epoch AND lease_owner IS NULL

-- host_lanes_emptied --
-- Lanes of a host that have become empty: a run must not wait for the host's pause to end.
UPDATE lanes SET ready = 0
 WHERE host = :host AND ready = 1 AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.lane_id = lanes.lane_id AND j.ready = 1)

-- host_lanes_emptied @postgres --
SELECT dispatch_host_lanes_emptied(:host)

-- host_set_concurrency --
UPDATE hosts SET concurrency = :value, updated_at = :now WHERE host = :host

-- host_set_rate_per_s --
UPDATE hosts SET rate_per_s = :value, updated_at = :now WHERE host = :host

-- host_set_paused --
UPDATE hosts SET paused = :value, updated_at = :now WHERE host = :host

-- host_set_cooldown_until --
UPDATE hosts SET cooldown_until = :value, cooldown_tenant = NULL, updated_at = :now WHERE host = :host

-- host_set_reason --
UPDATE hosts SET reason = :value, updated_at = :now WHERE host = :host

-- hosts_page --
SELECT {host}
  FROM hosts WHERE host > :after ORDER BY host LIMIT :many

-- hosts_pending --
-- The pending jobs of a tenant and project by host, or those of one host: ready ones of its lanes, and those with a time to wait. (The + makes SQLite
-- start from the waiting rows, not the tenant.)
SELECT l.host, count(*) FROM lanes AS l JOIN jobs AS j ON j.lane_id = l.lane_id AND j.ready = 1
 WHERE l.tenant_id = :tenant_id AND l.project_id = :project_id AND l.ready = 1
   AND (CAST(:host AS TEXT) IS NULL OR l.host = :host) GROUP BY l.host
UNION ALL
SELECT w.host, count(*) FROM jobs AS w
 WHERE w.next_attempt_at IS NOT NULL AND +w.tenant_id = :tenant_id AND w.project_id = :project_id
   AND (CAST(:host AS TEXT) IS NULL OR w.host = :host) GROUP BY w.host

-- hosts_pending @postgres --
SELECT l.host, count(*) FROM lanes AS l JOIN jobs AS j ON j.lane_id = l.lane_id AND j.ready = 1
 WHERE l.tenant_id = :tenant_id AND l.project_id = :project_id AND l.ready = 1
   AND (CAST(:host AS TEXT) IS NULL OR l.host = :host) GROUP BY l.host
UNION ALL
SELECT w.host, count(*) FROM jobs AS w
 WHERE w.next_attempt_at IS NOT NULL AND w.tenant_id = :tenant_id AND w.project_id = :project_id
   AND (CAST(:host AS TEXT) IS NULL OR w.host = :host) GROUP BY w.host
