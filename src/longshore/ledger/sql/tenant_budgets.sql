-- budget_row --
SELECT bytes, items, jobs FROM budgets WHERE tenant_id = :tenant_id

-- budget_held --
-- The same, for a transaction that counts against the budget.
SELECT bytes, items, jobs FROM budgets WHERE tenant_id = :tenant_id

-- budget_held @postgres --
-- Locked until the end of the transaction, so that no other transaction counts meanwhile.
SELECT bytes, items, jobs FROM budgets WHERE tenant_id = :tenant_id FOR NO KEY UPDATE

-- budget_free --
-- For a claim: the limits, and whether they may be counted against now.
SELECT bytes, items, jobs, 1 FROM budgets WHERE tenant_id = :tenant_id

-- budget_free @postgres --
-- Do not wait for a locked row: the claim continues with the next tenant.
SELECT b.bytes, b.items, b.jobs, CASE WHEN held.tenant_id IS NULL THEN 0 ELSE 1 END
  FROM budgets AS b
  LEFT JOIN LATERAL (SELECT o.tenant_id FROM budgets AS o WHERE o.tenant_id = b.tenant_id FOR NO KEY UPDATE SKIP LOCKED)
    AS held ON true
 WHERE b.tenant_id = :tenant_id

-- budget_known --
-- Create a row to lock for a tenant whose limits come only from the settings.
INSERT INTO budgets (tenant_id, updated_at) VALUES (:tenant_id, :now) ON CONFLICT (tenant_id) DO NOTHING

-- budget_put --
INSERT INTO budgets (tenant_id, bytes, items, jobs, updated_at) VALUES (:tenant_id, :bytes, :items, :jobs, :now)
ON CONFLICT (tenant_id) DO UPDATE
   SET bytes = excluded.bytes, items = excluded.items, jobs = excluded.jobs, updated_at = excluded.updated_at

-- budget_used --
-- A tenant's usage, from the counters of all its projects.
SELECT status, sum(n) FROM counters WHERE tenant_id = :tenant_id GROUP BY status

-- budget_promised --
-- Bytes that were received and are being published for jobs other than these. (From the leases: there are few of them.)
SELECT coalesce(sum(json_extract(e.request, '$.size_bytes')), 0)
  FROM jobs AS j INDEXED BY jobs_expiry CROSS JOIN effects AS e
 WHERE e.tenant_id = j.tenant_id AND e.project_id = j.project_id AND e.job_id = j.job_id AND j.tenant_id = :tenant_id
   AND j.lease_until IS NOT NULL AND e.kind = 'FINALIZE' AND e.state = 'intended'
   AND j.job_id NOT IN (SELECT value FROM {each job_ids})

-- budget_promised @postgres --
SELECT CAST(coalesce(sum(CAST(CAST(e.request AS jsonb) ->> 'size_bytes' AS bigint)), 0) AS bigint)
  FROM jobs AS j
  JOIN effects AS e ON e.tenant_id = j.tenant_id AND e.project_id = j.project_id AND e.job_id = j.job_id
 WHERE j.tenant_id = :tenant_id AND j.lease_until IS NOT NULL AND e.kind = 'FINALIZE' AND e.state = 'intended'
   AND j.job_id <> ALL (ARRAY(SELECT jsonb_array_elements_text(CAST(:job_ids AS jsonb))))
