-- Runs: names that jobs share. There is no table of them: everything is read by the index jobs_run.

-- {of_run} --
i.run_id = :run_id

-- {of_run} @postgres --
i.run_hash = text_hash(:run_id)

-- run_names --
-- The names of all runs: a loose scan, one probe per run.
WITH RECURSIVE t (run_id) AS (
  SELECT (SELECT run_id FROM jobs WHERE tenant_id = :tenant_id AND project_id = :project_id AND run_id IS NOT NULL
           ORDER BY run_id LIMIT 1)
  UNION ALL
  SELECT (SELECT j.run_id FROM jobs AS j WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id
             AND j.run_id > t.run_id ORDER BY j.run_id LIMIT 1)
    FROM t WHERE t.run_id IS NOT NULL)
SELECT run_id FROM t WHERE run_id IS NOT NULL LIMIT :many

-- run_names @postgres --
WITH RECURSIVE t (run_hash, run_id) AS (
  SELECT f.run_hash, f.run_id
    FROM (SELECT i.run_hash, i.run_id FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
             AND i.run_hash IS NOT NULL ORDER BY i.run_hash LIMIT 1) AS f
  UNION ALL
  SELECT n.run_hash, n.run_id FROM t
   CROSS JOIN LATERAL (SELECT i.run_hash, i.run_id FROM jobs AS i WHERE i.tenant_id = :tenant_id
     AND i.project_id = :project_id AND i.run_hash > t.run_hash ORDER BY i.run_hash LIMIT 1) AS n)
SELECT run_id FROM t LIMIT :many

-- run_first --
-- The first job of a run.
SELECT min((SELECT min(i.seq) FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
              AND {of_run} AND i.status = s.column1))
  FROM (VALUES ('pending'), ('processing'), ('completed'), ('failed'), ('skipped'), ('canceled')) AS s

-- run_counts --
SELECT i.status, count(*) FROM jobs AS i
 WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND {of_run}
 GROUP BY i.status

-- run_heads --
-- The next ready jobs of a run, by the index: what other runs have in the same lanes costs nothing.
SELECT {job}
  FROM jobs AS j
 WHERE j.seq IN (SELECT i.seq FROM jobs AS i
                  WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND {of_run} AND i.status = 'pending'
                    AND i.ready = 1 AND i.lease_owner IS NULL
                    AND CASE WHEN CAST(:job_types AS TEXT) IS NULL THEN TRUE
                             ELSE i.job_type IN (SELECT value FROM {each job_types}) END
                  ORDER BY i.seq LIMIT :many)
 ORDER BY j.priority DESC, j.seq

-- run_heads @postgres --
SELECT {job}
  FROM jobs AS j
 WHERE j.seq = ANY (ARRAY(SELECT i.seq FROM jobs AS i
                  WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND {of_run} AND i.status = 'pending'
                    AND i.ready = 1 AND i.lease_owner IS NULL
                    AND (CAST(:job_types AS jsonb) IS NULL OR CAST(:job_types AS jsonb) ? i.job_type)
                  ORDER BY i.seq LIMIT :many
                    FOR NO KEY UPDATE SKIP LOCKED))
 ORDER BY j.priority DESC, j.seq

-- run_due --
-- When the next job of a run can be claimed: 0 is now; NULL: all are over.
SELECT COALESCE(
  (SELECT 0 FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND {of_run}
      AND i.status = 'pending' AND i.ready = 1 LIMIT 1),
  (SELECT min(COALESCE(i.next_attempt_at, i.lease_until, 0)) FROM jobs AS i
    WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND {of_run}
      AND (i.status = 'pending' OR i.status = 'processing')))

-- run_figures --
-- A run by status: jobs, failed ones that were not tried again, first and last time, results and their bytes.
SELECT i.status, count(*), sum(CASE WHEN i.status = 'failed' AND i.superseded = 0 THEN 1 ELSE 0 END), min(i.created_at),
       max(COALESCE(i.completed_at, i.failed_at, i.updated_at)),
       sum((SELECT count(*) FROM job_artifacts AS r WHERE r.tenant_id = i.tenant_id AND r.project_id = i.project_id
               AND r.job_id = i.job_id AND r.role = 'result')),
       CAST(sum((SELECT sum(a.byte_size) FROM job_artifacts AS r
                   JOIN artifacts AS a ON a.tenant_id = r.tenant_id AND a.project_id = r.project_id
                    AND a.artifact_id = r.artifact_id
                  WHERE r.tenant_id = i.tenant_id AND r.project_id = i.project_id AND r.job_id = i.job_id
                    AND r.role = 'result')) AS BIGINT)
  FROM jobs AS i
 WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND {of_run}
 GROUP BY i.status

-- failure_groups_of_run --
-- Failed jobs of a run without a retry, counted by reason and host, with the newest of each as an example.
SELECT g.error_code, g.host, g.n, j.job_id, COALESCE(j.url, j.canonical_url), j.error_message_safe, j.failed_at
  FROM (SELECT i.error_code, i.host, count(*) AS n, max(i.seq) AS seq FROM jobs AS i
         WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND {of_run} AND i.status = 'failed'
           AND i.superseded = 0
         GROUP BY i.error_code, i.host ORDER BY count(*) DESC, i.error_code, i.host LIMIT :many) AS g
  JOIN jobs AS j ON j.seq = g.seq
 ORDER BY g.n DESC, g.error_code, g.host
