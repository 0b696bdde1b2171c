-- Bodies under way and bodies that took a while: what the dashboard counts as arriving, and when.

-- {begun} --
-- When the body began to arrive, and its facts: the latest event of a stage. Small bodies have none.
(SELECT max(e.at) FROM events AS e WHERE e.tenant_id = :tenant_id AND e.project_id = :project_id AND e.job_id = b.job_id
    AND e.kind = 'stage'),
(SELECT e.facts FROM events AS e WHERE e.tenant_id = :tenant_id AND e.project_id = :project_id AND e.job_id = b.job_id
    AND e.kind = 'stage' ORDER BY e.seq DESC LIMIT 1)

-- transfers --
-- The jobs whose bodies live leases receive now, in order of planning. (The stage is the condition of the index jobs_streaming.)
SELECT {job},
       (SELECT c.claimed_at FROM job_claims AS c WHERE c.tenant_id = :tenant_id AND c.project_id = :project_id
           AND c.job_id = b.job_id AND c.epoch = j.lease_epoch), {begun}
  FROM (SELECT i.job_id, i.seq FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND i.stage = 'STREAMING' AND i.lease_until > :now ORDER BY i.seq LIMIT :many) AS b
  JOIN jobs AS j ON j.seq = b.seq
 ORDER BY j.seq

-- transfer_any --
-- Whether a body is arriving: ends at the first one.
SELECT 1 FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND i.stage = 'STREAMING'
   AND i.lease_until > :now LIMIT 1

-- long_arrivals --
-- Large artifacts registered since a time, with when their bodies began to arrive.
SELECT b.artifact_id, b.byte_size, b.created_at, {begun}
  FROM (SELECT a.artifact_id, a.byte_size, a.created_at, a.created_by_job_id AS job_id FROM artifacts AS a
         WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.artifact_id >= :floor_id AND a.byte_size >= :least
         ORDER BY a.artifact_id DESC LIMIT :many) AS b
