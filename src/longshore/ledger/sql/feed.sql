-- The change feed: artifacts that are new, changed or gone, from the events of a project.

-- feed_made --
-- The artifacts that jobs made, as they are now, each with what its job asked for.
SELECT {artifact}, COALESCE(j.url, j.canonical_url), COALESCE(j.work_id, j.canonical_url)
  FROM artifacts AS a
  JOIN jobs AS j ON j.tenant_id = a.tenant_id AND j.project_id = a.project_id AND j.job_id = a.created_by_job_id
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.created_by_job_id IN (SELECT value FROM {each job_ids})
 ORDER BY a.artifact_id

-- feed_made @sqlite --
-- The same; without statistics SQLite would walk the whole project.
SELECT {artifact}, COALESCE(j.url, j.canonical_url), COALESCE(j.work_id, j.canonical_url)
  FROM {each job_ids} AS w
 CROSS JOIN artifacts AS a INDEXED BY artifacts_job
 CROSS JOIN jobs AS j
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.created_by_job_id = w.value
   AND j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = w.value
 ORDER BY a.artifact_id

-- feed_named --
-- The named artifacts, likewise.
SELECT {artifact}, COALESCE(j.url, j.canonical_url), COALESCE(j.work_id, j.canonical_url)
  FROM artifacts AS a
  JOIN jobs AS j ON j.tenant_id = a.tenant_id AND j.project_id = a.project_id AND j.job_id = a.created_by_job_id
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.artifact_id IN (SELECT value FROM {each artifact_ids})

-- feed_gone --
-- What is still known of deleted artifacts.
SELECT t.artifact_id, t.artifact_type, t.sha256 FROM artifact_tombstones AS t
 WHERE t.tenant_id = :tenant_id AND t.project_id = :project_id AND t.artifact_id IN (SELECT value FROM {each artifact_ids})

-- feed_position --
SELECT seq FROM feed_consumers WHERE tenant_id = :tenant_id AND project_id = :project_id AND consumer = :consumer

-- feed_list --
SELECT consumer, seq, created_at, updated_at FROM feed_consumers
 WHERE tenant_id = :tenant_id AND project_id = :project_id ORDER BY consumer

-- feed_end @sqlite --
-- No event that a reader can have seen has a higher number.
SELECT coalesce(max(seq), 0) FROM events

-- feed_end @postgres --
SELECT events_horizon() - 1

-- feed_ack (tenant_id, project_id, consumer, seq, now) --
INSERT INTO feed_consumers (tenant_id, project_id, consumer, seq, created_at, updated_at)
VALUES (:tenant_id, :project_id, :consumer, :seq, :now, :now)
ON CONFLICT (tenant_id, project_id, consumer) DO UPDATE SET seq = excluded.seq, updated_at = excluded.updated_at
 WHERE feed_consumers.seq < excluded.seq

-- feed_forget --
DELETE FROM feed_consumers WHERE tenant_id = :tenant_id AND project_id = :project_id AND consumer = :consumer
