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
