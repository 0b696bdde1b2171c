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
ALTER TABLE feed_consumers ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON feed_consumers USING (tenant_id = (SELECT current_tenant())) WITH CHECK (tenant_id = current_tenant());
CREATE POLICY dispatcher ON feed_consumers TO longshore_dispatcher USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON feed_consumers TO longshore_app, longshore_dispatcher;
ALTER TABLE feed_consumers FORCE ROW LEVEL SECURITY;
