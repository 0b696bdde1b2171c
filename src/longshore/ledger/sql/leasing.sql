-- open_tenants --
-- The tenants that have an open lane, after one of them: a loose scan, one probe per tenant.
WITH RECURSIVE t (tenant_id) AS (
  SELECT (SELECT tenant_id FROM lanes WHERE ready = 1 AND parked_until IS NULL AND tenant_id > :after
           ORDER BY tenant_id LIMIT 1)
  UNION ALL
  SELECT (SELECT l.tenant_id FROM lanes AS l WHERE l.ready = 1 AND l.parked_until IS NULL AND l.tenant_id > t.tenant_id
           ORDER BY l.tenant_id LIMIT 1)
    FROM t WHERE t.tenant_id IS NOT NULL)
SELECT tenant_id FROM t WHERE tenant_id IS NOT NULL LIMIT :many

-- open_lanes --
-- The open lanes of a tenant in the order in which they are served.
SELECT lane_id, host, top
  FROM lanes
 WHERE ready = 1 AND parked_until IS NULL AND tenant_id = :tenant_id
   AND (CAST(:project_id AS TEXT) IS NULL OR project_id = :project_id)
   AND CASE WHEN CAST(:job_types AS TEXT) IS NULL THEN TRUE
            ELSE job_type IN (SELECT value FROM {each job_types}) END
 ORDER BY top DESC, turn
 LIMIT :many

-- lane_heads --
-- The next ready jobs of a lane.
SELECT {job}
  FROM jobs AS j
 WHERE j.lane_id = :lane_id AND j.ready = 1
 ORDER BY j.priority DESC, j.seq
 LIMIT :many

-- named_heads --
-- Free jobs among named ones: for a caller that waits for its own. (NOT IN: the ids lead, not the status.)
SELECT {job}
  FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id IN (SELECT value FROM {each job_ids})
   AND j.status NOT IN ('completed', 'failed', 'skipped', 'canceled')
   AND j.lease_owner IS NULL AND j.next_attempt_at IS NULL
   AND CASE WHEN CAST(:job_types AS TEXT) IS NULL THEN j.ready = 1
            ELSE j.job_type IN (SELECT value FROM {each job_types}) END
 ORDER BY j.priority DESC, j.seq
 LIMIT :many

-- grant (owner, until, slot_host, lease_slots, stage, counts, now, seq) --
-- One lease each: the epoch grows, the attempt starts at its first stage. (slot_host is in the row already.)
UPDATE jobs
   SET lease_owner = :owner, lease_until = :until, lease_epoch = lease_epoch + 1, slot_host = NULLIF(host, ''),
       lease_slots = :lease_slots, ready = 0, status = 'processing',
       stage = :stage, claims = claims + :counts,
       progress = NULL, bytes_done = NULL, bytes_total = NULL, updated_at = :now, row_version = row_version + 1
 WHERE seq IN {all seq} AND lease_owner IS NULL

-- claim_insert (tenant_id, project_id, job_id, epoch, owner, host, now) --
INSERT INTO job_claims (tenant_id, project_id, job_id, epoch, owner, host, claimed_at)
VALUES (:tenant_id, :project_id, :job_id, :epoch, :owner, :host, :now)

-- claim_end (now, outcome, reason, tenant_id, project_id, job_id, epoch) --
UPDATE job_claims SET ended_at = :now, outcome = :outcome, reason = :reason
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id IN {all job_id} AND epoch = :epoch
   AND ended_at IS NULL

-- lane_served (turn, top, ready, lane_id) --
-- The lane was served: give it the next turn number. Turn numbers increase even if the clock does not.
UPDATE lanes SET turn = CASE WHEN turn < :turn THEN :turn ELSE turn + 1 END, top = :top, ready = :ready
 WHERE lane_id = :lane_id

-- lane_park (parked_until, lane_id) --
UPDATE lanes SET parked_until = :parked_until WHERE lane_id = :lane_id

-- lanes_unpark_due (now) --
UPDATE lanes SET parked_until = NULL WHERE parked_until <= :now

-- lanes_unpark_hosts (host) --
-- A slot was released: lanes waiting for this host can be claimed from again.
UPDATE lanes SET parked_until = NULL WHERE host = :host AND parked_until IS NOT NULL

-- host_facts --
SELECT {host}
  FROM hosts WHERE host IN (SELECT value FROM {each hosts})

-- host_uses --
-- What is in flight at these hosts, by owner, from live leases.
SELECT slot_host, lease_owner, count(*), max(lease_slots), min(lease_until)
  FROM jobs
 WHERE slot_host IN (SELECT value FROM {each hosts}) AND lease_until > :now
 GROUP BY slot_host, lease_owner

-- host_started (host, next_start_at, now) --
-- Advance the schedule of a host with a rate limit.
INSERT INTO hosts (host, next_start_at, updated_at) VALUES (:host, :next_start_at, :now)
ON CONFLICT (host) DO UPDATE SET next_start_at = excluded.next_start_at

-- fence (tenant_id, project_id, job_id, lease_epoch, lease_owner, now) --
-- The row of a job whose lease is still valid. Every write after the claim begins with this fence.
SELECT j.job_id, j.seq, j.stage, j.status, j.job_type, j.attempts, j.lane_id, j.priority, j.host, j.slot_host,
       j.canonical_url, j.cancel_requested_at, j.lease_epoch
  FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id IN {all job_id}
   AND j.lease_epoch = :lease_epoch AND j.lease_owner = :lease_owner AND j.lease_until > :now

-- renew (until, now, tenant_id, project_id, job_id, lease_epoch, lease_owner) --
UPDATE jobs SET lease_until = :until, updated_at = :now
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id
   AND lease_epoch = :lease_epoch AND lease_owner = :lease_owner AND lease_until > :now
RETURNING job_id, lease_epoch, cancel_requested_at

-- move_stage (stage, counts, now, seq, lease_epoch) --
-- The next stage of a leased job; its status does not change.
UPDATE jobs SET stage = :stage, claims = claims + :counts, updated_at = :now, row_version = row_version + 1
 WHERE seq IN {all seq} AND lease_epoch = :lease_epoch

-- move_finalized (counts, now, seq, lease_epoch) --
-- The transfer is complete: release the host's slot, but keep the lease.
UPDATE jobs SET stage = 'FINALIZED', claims = claims + :counts, slot_host = NULL, updated_at = :now,
       row_version = row_version + 1
 WHERE seq IN {all seq} AND lease_epoch = :lease_epoch

-- set_progress (progress, bytes_done, bytes_total, seq, lease_epoch) --
UPDATE jobs SET progress = :progress, bytes_done = :bytes_done, bytes_total = :bytes_total
 WHERE seq = :seq AND lease_epoch = :lease_epoch

-- url_streaming --
-- The jobs whose large bodies live leases receive from a URL. (Stage and lease: the condition of the index, and no dead worker's.)
SELECT {job} FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.stage = 'STREAMING' AND j.canonical_url = :canonical_url
   AND j.lease_until > :now AND j.job_id <> :job_id
 LIMIT 10

-- set_slot (slot_host, lease_slots, seq, lease_epoch) --
UPDATE jobs SET slot_host = :slot_host, lease_slots = :lease_slots WHERE seq = :seq AND lease_epoch = :lease_epoch

-- set_trail (trail, seq, lease_epoch) --
UPDATE jobs SET trail = NULLIF(:trail, '') WHERE seq = :seq AND lease_epoch = :lease_epoch

-- {given} --
j.seq, j.tenant_id, j.project_id, j.job_id, j.job_type, j.stage, j.status, j.lease_epoch, j.slot_host, j.lane_id, j.priority,
j.cancel_requested_at

-- expired_leases --
SELECT {given} FROM jobs AS j WHERE j.lease_until <= :now ORDER BY j.lease_until LIMIT :many

-- leases_of --
-- The leases of the given owners: scans only live leases.
SELECT {given} FROM jobs AS j
 WHERE j.lease_until IS NOT NULL AND j.lease_owner IN (SELECT value FROM {each owners})
 LIMIT :many

-- give_back (ready, status, stage, now, seq, lease_epoch) --
-- The lease ended without an outcome: the job is ready again, from its first stage. A job that an external program
-- works on continues without a lease.
UPDATE jobs
   SET lease_owner = NULL, lease_until = NULL, slot_host = NULL, lease_slots = NULL,
       ready = :ready, status = :status, stage = :stage,
       updated_at = :now, row_version = row_version + 1
 WHERE seq IN {all seq} AND lease_epoch = :lease_epoch AND lease_owner IS NOT NULL

-- promote_waiting --
-- Waiting jobs that are due.
UPDATE jobs SET next_attempt_at = NULL, ready = 1
 WHERE seq IN (SELECT seq FROM jobs WHERE next_attempt_at <= :now ORDER BY next_attempt_at LIMIT :many)
RETURNING lane_id, priority

-- next_due --
-- When the next job becomes claimable by itself.
SELECT min(at) FROM (
  SELECT min(next_attempt_at) AS at FROM jobs WHERE next_attempt_at IS NOT NULL
  UNION ALL SELECT min(lease_until) FROM jobs WHERE lease_until IS NOT NULL
  UNION ALL SELECT min(parked_until) FROM lanes WHERE parked_until IS NOT NULL AND ready = 1
  UNION ALL SELECT CASE WHEN EXISTS (SELECT 1 FROM lanes AS l JOIN jobs AS j ON j.lane_id = l.lane_id AND j.ready = 1
                                      WHERE l.ready = 1 AND l.parked_until IS NULL) THEN :now END
) AS due

-- claims_ended --
-- The grants that ended in one way (for the tests and the doctor; reads all of them).
SELECT job_id, epoch, owner FROM job_claims WHERE outcome = :outcome
