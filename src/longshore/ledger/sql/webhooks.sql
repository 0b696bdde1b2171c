-- Webhooks: endpoints, what they are to be sent, and what was given up.

-- {webhook} --
w.webhook_id, w.url, w.secret, w.kinds, w.created_at, w.attempts, w.next_at, w.reason, w.disabled_at

-- webhook_add --
INSERT INTO webhooks (tenant_id, project_id, webhook_id, url, secret, kinds, created_at)
VALUES (:tenant_id, :project_id, :webhook_id, :url, :secret, :kinds, :now)

-- webhook_list --
SELECT {webhook} FROM webhooks AS w
 WHERE w.tenant_id = :tenant_id AND w.project_id = :project_id ORDER BY w.webhook_id

-- webhook_remove --
DELETE FROM webhooks WHERE tenant_id = :tenant_id AND project_id = :project_id AND webhook_id = :webhook_id

-- webhook_claim --
-- For one process: no other one sends until then.
UPDATE webhooks SET next_at = :until
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND webhook_id = :webhook_id AND next_at <= :now
   AND disabled_at IS NULL

-- webhook_note --
UPDATE webhooks SET attempts = :attempts, next_at = :next_at, reason = :reason, disabled_at = :disabled_at
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND webhook_id = :webhook_id

-- webhook_give_up --
INSERT INTO webhook_failures (tenant_id, project_id, webhook_id, message_id, body, reason, failed_at)
VALUES (:tenant_id, :project_id, :webhook_id, :message_id, :body, :reason, :now)
ON CONFLICT (tenant_id, project_id, webhook_id, message_id) DO UPDATE SET reason = excluded.reason, failed_at = excluded.failed_at

-- webhook_dead --
SELECT f.message_id, f.body, f.reason, f.failed_at FROM webhook_failures AS f
 WHERE f.tenant_id = :tenant_id AND f.project_id = :project_id AND f.webhook_id = :webhook_id
 ORDER BY f.failed_at, f.message_id LIMIT :many

-- webhook_forget_dead --
DELETE FROM webhook_failures
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND webhook_id = :webhook_id AND message_id = :message_id

-- webhook_scopes @sqlite --
SELECT DISTINCT tenant_id, project_id FROM webhooks WHERE next_at <= :now AND disabled_at IS NULL

-- webhook_scopes @postgres --
SELECT tenant_id, project_id FROM dispatch_webhooks(:now)
