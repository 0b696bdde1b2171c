-- host_row --
SELECT host, concurrency, rate_per_s, paused, cooldown_until, failures, failed_at, next_start_at
  FROM hosts WHERE host = :host

-- host_set_concurrency --
UPDATE hosts SET concurrency = :value, updated_at = :now WHERE host = :host

-- host_set_rate_per_s --
UPDATE hosts SET rate_per_s = :value, updated_at = :now WHERE host = :host

-- host_set_paused --
UPDATE hosts SET paused = :value, updated_at = :now WHERE host = :host

-- host_set_cooldown_until --
UPDATE hosts SET cooldown_until = :value, updated_at = :now WHERE host = :host

-- hosts_page --
SELECT host, concurrency, rate_per_s, paused, cooldown_until, failures, failed_at, reason
  FROM hosts WHERE host > :after ORDER BY host LIMIT :many
