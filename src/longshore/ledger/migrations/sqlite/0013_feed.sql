-- How far each consumer of the change feed has acknowledged the events of a project.
CREATE TABLE feed_consumers (
  tenant_id  TEXT NOT NULL,
  project_id TEXT NOT NULL,
  consumer   TEXT NOT NULL,
  seq        INTEGER NOT NULL CHECK (seq >= 0),   -- of the last event that is acknowledged
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, project_id, consumer)
) STRICT, WITHOUT ROWID;

-- Where changes are sent: an endpoint is a consumer of the feed, named `webhook-` and its id.
CREATE TABLE webhooks (
  tenant_id   TEXT NOT NULL,
  project_id  TEXT NOT NULL,
  webhook_id  TEXT NOT NULL,
  url         TEXT NOT NULL,
  secret      TEXT NOT NULL,               -- signs what is sent; shown once
  kinds       TEXT NOT NULL,               -- JSON list: which changes are sent
  created_at  INTEGER NOT NULL,
  attempts    INTEGER NOT NULL DEFAULT 0,  -- that failed for the change that is next
  next_at     INTEGER NOT NULL DEFAULT 0,  -- nothing is sent before: it failed, or another process sends
  reason      TEXT,                        -- of the last failure
  disabled_at INTEGER,                     -- the endpoint answered that it is gone
  PRIMARY KEY (tenant_id, project_id, webhook_id)
) STRICT, WITHOUT ROWID;
-- What was given up after every attempt: dead letters.
CREATE TABLE webhook_failures (
  tenant_id  TEXT NOT NULL,
  project_id TEXT NOT NULL,
  webhook_id TEXT NOT NULL,
  message_id TEXT NOT NULL,                -- the header webhook-id
  body       TEXT NOT NULL,
  reason     TEXT NOT NULL,
  failed_at  INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, project_id, webhook_id, message_id),
  FOREIGN KEY (tenant_id, project_id, webhook_id) REFERENCES webhooks (tenant_id, project_id, webhook_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
