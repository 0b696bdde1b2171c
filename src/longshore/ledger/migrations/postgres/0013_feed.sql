-- How far each consumer of the change feed has acknowledged the events of a project.
CREATE TABLE feed_consumers (
  tenant_id  TEXT COLLATE "C" NOT NULL,
  project_id TEXT COLLATE "C" NOT NULL,
  consumer   TEXT COLLATE "C" NOT NULL,
  seq        BIGINT NOT NULL CHECK (seq >= 0),   -- of the last event that is acknowledged
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, consumer)
);

-- Where changes are sent: an endpoint is a consumer of the feed, named `webhook-` and its id.
CREATE TABLE webhooks (
  tenant_id   TEXT COLLATE "C" NOT NULL,
  project_id  TEXT COLLATE "C" NOT NULL,
  webhook_id  TEXT COLLATE "C" NOT NULL,
  url         TEXT NOT NULL,
  secret      TEXT NOT NULL,               -- signs what is sent; shown once
  kinds       TEXT NOT NULL,               -- JSON list: which changes are sent
  created_at  BIGINT NOT NULL,
  attempts    BIGINT NOT NULL DEFAULT 0,   -- that failed for the change that is next
  next_at     BIGINT NOT NULL DEFAULT 0,   -- nothing is sent before: it failed, or another process sends
  reason      TEXT,                        -- of the last failure
  disabled_at BIGINT,                      -- the endpoint answered that it is gone
  PRIMARY KEY (tenant_id, project_id, webhook_id)
);
-- What was given up after every attempt: dead letters.
CREATE TABLE webhook_failures (
  tenant_id  TEXT COLLATE "C" NOT NULL,
  project_id TEXT COLLATE "C" NOT NULL,
  webhook_id TEXT COLLATE "C" NOT NULL,
  message_id TEXT COLLATE "C" NOT NULL,    -- the header webhook-id
  body       TEXT NOT NULL,
  reason     TEXT NOT NULL,
  failed_at  BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, webhook_id, message_id),
  FOREIGN KEY (tenant_id, project_id, webhook_id) REFERENCES webhooks (tenant_id, project_id, webhook_id) ON DELETE CASCADE
);
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['feed_consumers', 'webhooks', 'webhook_failures'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY tenant ON %I USING (tenant_id = (SELECT current_tenant())) WITH CHECK (tenant_id = current_tenant())', name);
    EXECUTE format('CREATE POLICY dispatcher ON %I TO longshore_dispatcher USING (true) WITH CHECK (true)', name);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO longshore_app, longshore_dispatcher', name);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
  END LOOP;
END $$;

-- Whose endpoints may be sent something now; neither addresses nor secrets.
CREATE FUNCTION dispatch_webhooks(p_now bigint) RETURNS TABLE (tenant_id text, project_id text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT DISTINCT w.tenant_id, w.project_id FROM webhooks w WHERE w.next_at <= p_now AND w.disabled_at IS NULL;
END $$;
DO $$
BEGIN
  BEGIN
    GRANT longshore_dispatcher TO CURRENT_USER;
  EXCEPTION WHEN insufficient_privilege THEN
    IF NOT pg_has_role(current_user, 'longshore_dispatcher', 'MEMBER') THEN RAISE; END IF;  -- another role granted it
  END;
  EXECUTE format('GRANT CREATE ON SCHEMA %I TO longshore_dispatcher', current_schema());
  ALTER FUNCTION dispatch_webhooks(bigint) OWNER TO longshore_dispatcher;
  REVOKE ALL ON FUNCTION dispatch_webhooks(bigint) FROM PUBLIC;
  GRANT EXECUTE ON FUNCTION dispatch_webhooks(bigint) TO longshore_app;
  EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM longshore_dispatcher', current_schema());
  BEGIN
    REVOKE longshore_dispatcher FROM CURRENT_USER;
  EXCEPTION WHEN insufficient_privilege THEN NULL;
  END;
END $$;
