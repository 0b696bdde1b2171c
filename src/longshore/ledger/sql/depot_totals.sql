-- depot_counters --
SELECT status, SUM(n) FROM counters GROUP BY status;

-- depot_counters @postgres --
SELECT status, n FROM dispatch_counters();

-- depot_oldest_ready --
-- The first of each open lane; a lane's first is its oldest unless priorities differ.
SELECT MIN(created_at) FROM (
  SELECT (SELECT j.created_at FROM jobs AS j WHERE j.lane_id = l.lane_id AND j.ready = 1
           ORDER BY j.priority DESC, j.seq LIMIT 1) AS created_at
    FROM lanes AS l WHERE l.ready = 1 LIMIT 1000) AS heads;

-- depot_oldest_ready @postgres --
SELECT dispatch_oldest_ready();

-- depot_last_success --
-- When the newest artifact of any project was registered: one index lookup per project.
SELECT MAX(created_at) FROM (
  SELECT (SELECT a.created_at FROM artifacts AS a WHERE a.tenant_id = c.tenant_id AND a.project_id = c.project_id
           ORDER BY a.artifact_id DESC LIMIT 1) AS created_at
    FROM counters AS c WHERE c.status = 'artifacts') AS newest;

-- depot_last_success @postgres --
SELECT dispatch_last_success();

-- depot_circuits --
SELECT SUM(CASE WHEN paused = 1 THEN 1 ELSE 0 END),
       SUM(CASE WHEN paused = 0 AND (cooldown_until > :now OR (failures >= :failures AND failed_at > :since)) THEN 1 ELSE 0 END), COUNT(*)
  FROM hosts;

-- host_one --
SELECT {host} FROM hosts WHERE host = :host;

-- hosts_resting --
SELECT {host}
  FROM hosts WHERE paused = 1 OR cooldown_until > :now OR (failures >= :failures AND failed_at > :since)
 ORDER BY host LIMIT :many;

-- depot_schema --
SELECT value FROM _meta WHERE key = 'schema_version';

-- ledger_id --
SELECT value FROM _meta WHERE key = 'ledger_id';

-- ledger_id_insert --
INSERT INTO _meta (key, value) VALUES ('ledger_id', :value) ON CONFLICT (key) DO NOTHING;
