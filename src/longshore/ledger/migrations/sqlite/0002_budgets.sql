-- What a tenant may have, over all its projects. NULL = the program's setting, 0 = no limit.
CREATE TABLE budgets (
  tenant_id  TEXT NOT NULL PRIMARY KEY CHECK (tenant_id <> ''),
  bytes      INTEGER CHECK (bytes >= 0),   -- held, every blob once
  items      INTEGER CHECK (items >= 0),   -- artifacts held and jobs that are not over
  jobs       INTEGER CHECK (jobs >= 0),    -- worked on at the same time, by all workers together
  updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
