-- work_due --
-- When the next job of these types becomes claimable: after a backoff or when a lease expires. In one tenant and
-- project, or in all. NULL if there is none.
SELECT min(at) FROM (
  SELECT min(next_attempt_at) AS at FROM jobs
   WHERE next_attempt_at IS NOT NULL AND job_type IN (SELECT value FROM {each job_types})
     AND (CAST(:tenant_id AS TEXT) IS NULL OR (tenant_id = :tenant_id AND project_id = :project_id))
  UNION ALL
  SELECT min(lease_until) FROM jobs
   WHERE lease_until IS NOT NULL AND job_type IN (SELECT value FROM {each job_types})
     AND (CAST(:tenant_id AS TEXT) IS NULL OR (tenant_id = :tenant_id AND project_id = :project_id))
  UNION ALL
  SELECT min(coalesce(parked_until, :now)) FROM lanes
   WHERE ready = 1 AND job_type IN (SELECT value FROM {each job_types})
     AND (CAST(:tenant_id AS TEXT) IS NULL OR (tenant_id = :tenant_id AND project_id = :project_id))
) AS due

-- active_due --
-- The same for the given jobs; 0 means that one can be claimed now. (A cross join keeps the order: without statistics
-- SQLite would walk over every job that is not over.)
SELECT min(coalesce(j.next_attempt_at, j.lease_until, 0))
  FROM {each job_ids} AS w CROSS JOIN jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = w.value
   AND (j.status = 'pending' OR j.status = 'processing')

-- active_due @postgres --
SELECT min(coalesce(next_attempt_at, lease_until, 0))
  FROM jobs
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id IN (SELECT value FROM {each job_ids})
   AND status IN ('pending', 'processing')

-- stops_wanted --
-- This owner's jobs whose cancellation was requested: scans only live leases.
SELECT job_id FROM jobs WHERE lease_until IS NOT NULL AND lease_owner = :owner AND cancel_requested_at IS NOT NULL

-- hashes_named (tenant_id, project_id, sha256) --
-- Which of these hashes the registry knows.
SELECT sha256 FROM blobs WHERE tenant_id = :tenant_id AND project_id = :project_id AND sha256 = :sha256

-- pointers_named (tenant_id, project_id, sha256) --
-- Where the registry has the bytes of these hashes.
SELECT sha256, storage_pointer FROM blobs WHERE tenant_id = :tenant_id AND project_id = :project_id AND sha256 = :sha256
UNION
SELECT sha256, storage_pointer FROM artifacts WHERE tenant_id = :tenant_id AND project_id = :project_id AND sha256 = :sha256

-- hashes_intended (tenant_id, project_id, sha256) --
-- The hashes among these that a worker is about to publish.
SELECT fingerprint FROM effects
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND kind = 'FINALIZE' AND state = 'intended'
   AND fingerprint = :sha256

-- artifacts_after --
-- Every artifact of a tenant and project, a page at a time.
SELECT {artifact} FROM artifacts AS a
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.artifact_id > :after
 ORDER BY a.artifact_id
 LIMIT :many

-- artifacts_between --
-- The same by hash: the reconciler checks them slice by slice.
SELECT {artifact} FROM artifacts AS a
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.sha256 >= :low AND a.sha256 < :high
   AND (a.sha256, a.artifact_id) > (:after, :after_id)
 ORDER BY a.sha256, a.artifact_id
 LIMIT :many

-- blobs_counted --
SELECT COALESCE(SUM(n), 0) FROM counters WHERE tenant_id = :tenant_id AND project_id = :project_id AND status = 'blobs'

-- anything_available --
-- Ends at the first one; only what is marked missing is passed over.
SELECT 1 FROM artifacts WHERE tenant_id = :tenant_id AND project_id = :project_id AND availability = 'available' LIMIT 1

-- attempts_named --
SELECT job_id, attempts FROM jobs
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id IN (SELECT value FROM {each job_ids})

-- standings --
-- The status of the given jobs, without their request: the caller has it already.
SELECT job_id, COALESCE(url, canonical_url), status, error_code, error_message_safe, attempts, work_id FROM jobs
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id IN (SELECT value FROM {each job_ids})

-- jobs_named --
SELECT {job} FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id IN (SELECT value FROM {each job_ids})

-- results_named --
-- The results of named jobs, in order; a skipped job's are linked to it like its own.
SELECT {artifact}, r.job_id
  FROM job_artifacts AS r
  JOIN artifacts AS a ON a.tenant_id = r.tenant_id AND a.project_id = r.project_id AND a.artifact_id = r.artifact_id
 WHERE r.tenant_id = :tenant_id AND r.project_id = :project_id AND r.role = 'result'
   AND r.job_id IN (SELECT value FROM {each job_ids})
 ORDER BY r.job_id, r.ordinal

-- scopes_known --
-- Every tenant and project that has or had a job.
SELECT DISTINCT tenant_id, project_id FROM counters ORDER BY tenant_id, project_id

-- waits_timed --
-- Jobs that wait for a time, by host and reason. (The + makes SQLite start from the waiting rows, not the tenant.)
SELECT host, error_code, min(next_attempt_at), count(*) FROM jobs
 WHERE next_attempt_at IS NOT NULL AND +tenant_id = :tenant_id AND project_id = :project_id
 GROUP BY host, error_code ORDER BY count(*) DESC, host LIMIT :many

-- waits_timed @postgres --
SELECT host, error_code, min(next_attempt_at), count(*) FROM jobs
 WHERE next_attempt_at IS NOT NULL AND tenant_id = :tenant_id AND project_id = :project_id
 GROUP BY host, error_code ORDER BY count(*) DESC, host LIMIT :many

-- waits_parked --
-- Jobs that wait for a host that is at its limit or paused.
SELECT l.host, CASE WHEN h.paused = 1 THEN 'paused' WHEN (h.cooldown_until > :now AND COALESCE(h.cooldown_tenant, l.tenant_id) = l.tenant_id) OR h.failures > 0 THEN h.reason ELSE 'host_busy' END,
       l.parked_until, (SELECT count(*) FROM jobs AS j WHERE j.lane_id = l.lane_id AND j.ready = 1)
  FROM lanes AS l LEFT JOIN hosts AS h ON h.host = l.host
 WHERE l.ready = 1 AND l.parked_until IS NOT NULL AND l.tenant_id = :tenant_id AND l.project_id = :project_id
 ORDER BY 4 DESC, l.host LIMIT :many

-- waits_resting --
-- Jobs of hosts that rest, may rest after faults (no time: `rests_until` decides) or are paused, whose lanes no claim has
-- parked yet. Runs of named jobs park no lanes.
SELECT h.host, CASE WHEN h.paused = 1 THEN 'paused' ELSE h.reason END, CASE WHEN h.paused = 1 THEN :never WHEN h.failures = 0 THEN h.cooldown_until END,
       (SELECT count(*) FROM jobs AS j WHERE j.lane_id = l.lane_id AND j.ready = 1)
  FROM hosts AS h JOIN lanes AS l ON l.host = h.host AND l.tenant_id = :tenant_id AND l.project_id = :project_id
 WHERE (h.paused = 1 OR (h.cooldown_until > :now AND COALESCE(h.cooldown_tenant, l.tenant_id) = l.tenant_id) OR h.failures > 0) AND l.ready = 1 AND l.parked_until IS NULL
 ORDER BY 4 DESC, h.host LIMIT :many

-- waits_named --
-- What the given jobs wait for: leases of others, hosts that rest, times. Jobs that can be claimed now have no time, nor
-- have those of a host with faults: `rests_until` decides.
SELECT CASE WHEN j.lease_until IS NOT NULL THEN '' ELSE j.host END,
       CASE WHEN j.lease_until IS NOT NULL THEN 'leased' WHEN h.paused = 1 THEN 'paused' WHEN j.next_attempt_at IS NOT NULL THEN j.error_code
            WHEN (h.cooldown_until > :now AND COALESCE(h.cooldown_tenant, j.tenant_id) = j.tenant_id) OR h.failures > 0 THEN h.reason ELSE 'host_busy' END,
       min(COALESCE(j.lease_until, j.next_attempt_at, l.parked_until, CASE WHEN h.paused = 1 THEN :never WHEN h.failures = 0 THEN h.cooldown_until END)), count(*)
  FROM {each job_ids} AS w CROSS JOIN jobs AS j LEFT JOIN lanes AS l ON l.lane_id = j.lane_id LEFT JOIN hosts AS h ON h.host = j.host
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = w.value
   AND (j.status = 'pending' OR j.status = 'processing') AND (j.lease_owner IS NULL OR j.lease_owner <> :owner)
 GROUP BY 1, 2 ORDER BY 4 DESC, 1 LIMIT :many

-- waits_named @postgres --
SELECT CASE WHEN j.lease_until IS NOT NULL THEN '' ELSE j.host END,
       CASE WHEN j.lease_until IS NOT NULL THEN 'leased' WHEN h.paused = 1 THEN 'paused' WHEN j.next_attempt_at IS NOT NULL THEN j.error_code
            WHEN (h.cooldown_until > :now AND COALESCE(h.cooldown_tenant, j.tenant_id) = j.tenant_id) OR h.failures > 0 THEN h.reason ELSE 'host_busy' END,
       min(COALESCE(j.lease_until, j.next_attempt_at, l.parked_until, CASE WHEN h.paused = 1 THEN :never WHEN h.failures = 0 THEN h.cooldown_until END)), count(*)
  FROM jobs AS j LEFT JOIN lanes AS l ON l.lane_id = j.lane_id LEFT JOIN hosts AS h ON h.host = j.host
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id IN (SELECT value FROM {each job_ids})
   AND j.status IN ('pending', 'processing') AND (j.lease_owner IS NULL OR j.lease_owner <> :owner)
 GROUP BY 1, 2 ORDER BY 4 DESC, 1 LIMIT :many

-- waits_leased --
-- The leases of other workers. (The + makes SQLite start from the live leases, not the tenant.)
SELECT count(*), min(lease_until) FROM jobs
 WHERE lease_until IS NOT NULL AND lease_owner <> :owner AND +tenant_id = :tenant_id AND project_id = :project_id

-- waits_leased @postgres --
SELECT count(*), min(lease_until) FROM jobs
 WHERE lease_until IS NOT NULL AND lease_owner <> :owner AND tenant_id = :tenant_id AND project_id = :project_id
