-- token_insert --
INSERT INTO tokens (token_id, kind, parent_id, name, token_hash, tenant_id, project_id, scopes, created_at, expires_at)
VALUES (:token_id, :kind, :parent_id, :label, :token_hash, :tenant_id, :project_id, :scopes, :created_at, :expires_at);

-- token_by_hash --
-- A session lives no longer than the token it was opened with.
SELECT t.token_id, t.kind, t.parent_id, t.name, t.tenant_id, t.project_id, t.scopes, t.created_at,
       CASE WHEN p.expires_at < t.expires_at THEN p.expires_at ELSE COALESCE(t.expires_at, p.expires_at) END,
       COALESCE(t.revoked_at, p.revoked_at), t.last_used_at
  FROM tokens t LEFT JOIN tokens p ON p.token_id = t.parent_id
 WHERE t.token_hash = :token_hash;

-- token_alive --
SELECT 1 FROM tokens t LEFT JOIN tokens p ON p.token_id = t.parent_id
 WHERE t.token_id = :token_id AND COALESCE(t.revoked_at, p.revoked_at) IS NULL
   AND (t.expires_at IS NULL OR t.expires_at > :now) AND (p.expires_at IS NULL OR p.expires_at > :now);

-- token_list --
SELECT token_id, kind, parent_id, name, tenant_id, project_id, scopes, created_at, expires_at, revoked_at, last_used_at
  FROM tokens WHERE kind = 'api' ORDER BY created_at DESC, token_id DESC LIMIT :limit;

-- session_list --
-- Dashboard sessions that still open something.
SELECT t.token_id, t.kind, t.parent_id, COALESCE(p.name, t.name), t.tenant_id, t.project_id, t.scopes, t.created_at, t.expires_at,
       COALESCE(t.revoked_at, p.revoked_at), t.last_used_at
  FROM tokens t LEFT JOIN tokens p ON p.token_id = t.parent_id
 WHERE t.kind = 'session' AND t.revoked_at IS NULL AND p.revoked_at IS NULL AND t.expires_at > :now
   AND (p.expires_at IS NULL OR p.expires_at > :now)
 ORDER BY t.created_at DESC, t.token_id DESC LIMIT :limit;

-- token_revoke --
UPDATE tokens SET revoked_at = :now WHERE token_id = :token_id AND revoked_at IS NULL;

-- token_by_id --
SELECT token_id, kind, parent_id, name, tenant_id, project_id, scopes, created_at, expires_at, revoked_at, last_used_at
  FROM tokens WHERE token_id = :token_id;

-- token_touch --
UPDATE tokens SET last_used_at = :at WHERE token_id = :token_id AND (last_used_at IS NULL OR last_used_at < :at);

-- token_any_api --
SELECT 1 FROM tokens WHERE kind = 'api' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now) LIMIT 1;

-- token_sessions_over --
-- Delete revoked and expired sessions; API tokens are kept for the record.
DELETE FROM tokens WHERE kind = 'session' AND (revoked_at IS NOT NULL OR expires_at < :now);

-- audit_append @sqlite --
-- The trigger keeps the end of the chain.
INSERT INTO audit_log (tenant_id, project_id, at, token_id, action, target, detail, remote, number, hash)
SELECT :tenant_id, :project_id, :at, :token_id, :action, :target, :detail, :remote, COALESCE(h.number, 0) + 1,
       audit_hash(COALESCE(h.hash, ''), COALESCE(h.number, 0) + 1, :tenant_id, :project_id, :at, :token_id, :action, :target,
                  :detail, :remote, NULL)
  FROM (SELECT 1) LEFT JOIN audit_heads AS h ON h.tenant_id = :tenant_id AND h.project_id = :project_id;

-- audit_append @postgres --
SELECT dispatch_audit_append(:tenant_id, :project_id, :at, :token_id, :action, :target, :detail, :remote);

-- audit_scopes @sqlite --
SELECT tenant_id, project_id FROM audit_heads UNION SELECT tenant_id, project_id FROM audit_log ORDER BY 1, 2;

-- audit_scopes @postgres --
SELECT tenant_id, project_id FROM dispatch_audit_scopes();

-- audit_head --
SELECT number, hash, forgotten, forgotten_hash FROM audit_heads WHERE tenant_id = :tenant_id AND project_id = :project_id;

-- audit_chain --
-- A page of the chain. Lines without a number are not of it: they come first.
SELECT number, hash, tenant_id, project_id, at, token_id, action, target, detail, remote, login FROM audit_log
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND COALESCE(number, 0) > :after
 ORDER BY COALESCE(number, 0) LIMIT :limit;

-- audit_list --
-- With the name of the token; API tokens are never deleted.
SELECT a.seq, a.at, a.token_id, a.action, a.target, a.detail, a.remote, t.name
  FROM audit_log AS a LEFT JOIN tokens AS t ON t.token_id = a.token_id
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.seq < :before
 ORDER BY a.seq DESC LIMIT :limit;

-- request_key_find --
SELECT fingerprint, answer FROM request_keys
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND request_key = :request_key;

-- request_key_insert --
INSERT INTO request_keys (tenant_id, project_id, request_key, fingerprint, answer, created_at)
VALUES (:tenant_id, :project_id, :request_key, :fingerprint, :answer, :created_at)
ON CONFLICT DO NOTHING;

-- held_totals --
SELECT status, SUM(n) FROM counters
 WHERE tenant_id = :tenant_id AND project_id = :project_id
   AND status IN ('artifacts', 'artifact_bytes', 'blobs', 'blob_bytes')
 GROUP BY status;

-- held_lost --
-- Artifacts whose bytes were lost, by bytes: how many, their size, and whether a later artifact has the bytes again.
SELECT count(*), a.byte_size,
       EXISTS (SELECT 1 FROM artifacts AS b WHERE b.tenant_id = a.tenant_id AND b.project_id = a.project_id
                  AND b.sha256 = a.sha256 AND b.availability = 'available')
  FROM artifacts AS a
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.availability = 'missing'
 GROUP BY a.tenant_id, a.project_id, a.sha256, a.byte_size;

-- lost_results --
-- Results whose bytes are lost, if no later job for the same brought them again.
SELECT r.job_id, COALESCE(j.url, j.canonical_url, j.work_id), a.name, a.sha256, a.byte_size
  FROM artifacts AS a
  JOIN job_artifacts AS r ON r.tenant_id = a.tenant_id AND r.project_id = a.project_id AND r.artifact_id = a.artifact_id
  JOIN jobs AS j ON j.tenant_id = r.tenant_id AND j.project_id = r.project_id AND j.job_id = r.job_id
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.availability = 'missing' AND r.role = 'result'
   AND NOT EXISTS (SELECT 1 FROM jobs AS n WHERE n.tenant_id = j.tenant_id AND n.project_id = j.project_id
                      AND n.retry_of = j.job_id AND (n.status = 'completed' OR n.status = 'skipped'))
 ORDER BY r.job_id LIMIT :many;

-- arrivals --
-- Artifacts registered since a time, by time slot; ids are ordered by time, so this reads only the end of the table.
SELECT slot, COUNT(*), SUM(byte_size)
  FROM (SELECT created_at / :step AS slot, byte_size FROM artifacts
         WHERE tenant_id = :tenant_id AND project_id = :project_id AND artifact_id >= :floor_id
         ORDER BY artifact_id DESC LIMIT :limit) AS newest
 GROUP BY slot;

-- current_ids --
-- Of these jobs, the ones that no retry has replaced.
SELECT job_id FROM jobs
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND superseded = 0
   AND job_id IN (SELECT value FROM {each job_ids});

-- audit_forget_mark @sqlite --
-- Retention, first step: how far the oldest lines from before a moment go, some at a time.
UPDATE audit_heads SET (forgotten, forgotten_hash) = (
  SELECT a.number, a.hash FROM (
    SELECT o.number, o.hash, o.at FROM audit_log AS o WHERE o.tenant_id = :tenant_id AND o.project_id = :project_id
     ORDER BY o.number LIMIT :many) AS a WHERE a.at < :before ORDER BY a.number DESC LIMIT 1)
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND :before > (
  SELECT o.at FROM audit_log AS o WHERE o.tenant_id = :tenant_id AND o.project_id = :project_id ORDER BY o.number LIMIT 1);

-- audit_forget @sqlite --
DELETE FROM audit_log WHERE tenant_id = :tenant_id AND project_id = :project_id AND number <= (
  SELECT h.forgotten FROM audit_heads AS h WHERE h.tenant_id = :tenant_id AND h.project_id = :project_id);

-- audit_forget @postgres --
SELECT dispatch_audit_forget(:tenant_id, :project_id, :before, :many);

-- request_keys_forget --
DELETE FROM request_keys WHERE tenant_id = :tenant_id AND project_id = :project_id
   AND request_key IN (SELECT r.request_key FROM request_keys AS r
     WHERE r.tenant_id = :tenant_id AND r.project_id = :project_id AND r.created_at < :before LIMIT :many);
