-- The available results of the jobs of a list of keys that are over and well. CROSS JOIN: the keys lead, then each of their
-- rows is one step into an index. Apart from the other statements: reading all of those costs as much as 2,000 of these.
SELECT j.idempotency_key, j.job_id, j.status, j.attempts, a.artifact_id, a.storage_pointer, a.byte_size, a.sha256
  FROM json_each(:keys) AS k
  CROSS JOIN jobs AS j ON j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_type = :job_type
   AND j.idempotency_key = k.value AND j.superseded = 0 AND j.status IN ('completed', 'skipped')
   AND (j.request IS NULL OR j.request NOT LIKE '%"headers"%')  -- of an older program: its keys did not hold the headers
  CROSS JOIN job_artifacts AS r ON r.tenant_id = j.tenant_id AND r.project_id = j.project_id AND r.job_id = j.job_id
   AND r.role = 'result'
  CROSS JOIN artifacts AS a ON a.tenant_id = r.tenant_id AND a.project_id = r.project_id AND a.artifact_id = r.artifact_id
   AND a.availability = 'available'
