-- Lists. Every statement reads at most as many rows as it returns, or `scan` rows, never the whole table.

-- {job_filter} --
(CAST(:job_type AS TEXT) IS NULL OR j.job_type = :job_type) AND (CAST(:stage AS TEXT) IS NULL OR j.stage = :stage)
   AND (CAST(:reason AS TEXT) IS NULL OR j.error_code = :reason) AND (CAST(:host AS TEXT) IS NULL OR j.host = :host)
   AND (CAST(:url AS TEXT) IS NULL OR j.canonical_url = :url) AND (CAST(:run_id AS TEXT) IS NULL OR j.run_id = :run_id)
   AND (CAST(:work_id AS TEXT) IS NULL OR j.work_id = :work_id OR (j.work_id IS NULL AND j.canonical_url = :work_id))
   AND (CAST(:updated_after AS BIGINT) IS NULL OR j.updated_at >= :updated_after)
   AND (CAST(:current AS BIGINT) IS NULL OR j.superseded = 0)

-- jobs_newest --
-- Jobs of one status, newest first, among the next `scan` of them.
SELECT {job}
  FROM (SELECT * FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND i.status = :status
           AND i.seq < :edge ORDER BY i.seq DESC LIMIT :scan) AS j
 WHERE {job_filter}
 ORDER BY j.seq DESC LIMIT :many

-- jobs_newest_end --
-- The last row that this query scanned.
SELECT min(s.seq), count(*)
  FROM (SELECT i.seq FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND i.status = :status
           AND i.seq < :edge ORDER BY i.seq DESC LIMIT :scan) AS s

-- jobs_oldest --
SELECT {job}
  FROM (SELECT * FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND i.status = :status
           AND i.seq > :edge ORDER BY i.seq LIMIT :scan) AS j
 WHERE {job_filter}
 ORDER BY j.seq LIMIT :many

-- jobs_oldest_end --
SELECT max(s.seq), count(*)
  FROM (SELECT i.seq FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND i.status = :status
           AND i.seq > :edge ORDER BY i.seq LIMIT :scan) AS s

-- {of_type} --
-- (The second condition is that of the partial index jobs_typed; without it SQLite does not use the index.)
i.job_type = :job_type AND i.job_type <> 'download'

-- jobs_of_type_newest --
-- Jobs of one type that is not the common one.
SELECT {job}
  FROM (SELECT * FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND {of_type} AND i.status = :status
           AND i.seq < :edge ORDER BY i.seq DESC LIMIT :scan) AS j
 WHERE {job_filter}
 ORDER BY j.seq DESC LIMIT :many

-- jobs_of_type_newest_end --
SELECT min(s.seq), count(*)
  FROM (SELECT i.seq FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND {of_type} AND i.status = :status
           AND i.seq < :edge ORDER BY i.seq DESC LIMIT :scan) AS s

-- jobs_failed_newest --
-- Jobs that failed for one reason at one host.
SELECT {job}
  FROM (SELECT * FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND i.status = 'failed' AND i.error_code = :reason AND i.host = :host AND i.superseded = :superseded
           AND i.seq < :edge ORDER BY i.seq DESC LIMIT :scan) AS j
 WHERE {job_filter}
 ORDER BY j.seq DESC LIMIT :many

-- jobs_failed_newest_end --
SELECT min(s.seq), count(*)
  FROM (SELECT i.seq FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND i.status = 'failed' AND i.error_code = :reason AND i.host = :host AND i.superseded = :superseded
           AND i.seq < :edge ORDER BY i.seq DESC LIMIT :scan) AS s

-- jobs_of_type_oldest --
-- Jobs of one type that is not the common one.
SELECT {job}
  FROM (SELECT * FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND {of_type} AND i.status = :status
           AND i.seq > :edge ORDER BY i.seq LIMIT :scan) AS j
 WHERE {job_filter}
 ORDER BY j.seq LIMIT :many

-- jobs_of_type_oldest_end --
SELECT max(s.seq), count(*)
  FROM (SELECT i.seq FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND {of_type} AND i.status = :status
           AND i.seq > :edge ORDER BY i.seq LIMIT :scan) AS s

-- jobs_failed_oldest --
-- Jobs that failed for one reason at one host.
SELECT {job}
  FROM (SELECT * FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND i.status = 'failed' AND i.error_code = :reason AND i.host = :host AND i.superseded = :superseded
           AND i.seq > :edge ORDER BY i.seq LIMIT :scan) AS j
 WHERE {job_filter}
 ORDER BY j.seq LIMIT :many

-- jobs_failed_oldest_end --
SELECT max(s.seq), count(*)
  FROM (SELECT i.seq FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND i.status = 'failed' AND i.error_code = :reason AND i.host = :host AND i.superseded = :superseded
           AND i.seq > :edge ORDER BY i.seq LIMIT :scan) AS s

-- jobs_of_run_newest --
-- Jobs of one run and status.
SELECT {job}
  FROM (SELECT * FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND {of_run} AND i.status = :status
           AND i.seq < :edge ORDER BY i.seq DESC LIMIT :scan) AS j
 WHERE {job_filter}
 ORDER BY j.seq DESC LIMIT :many

-- jobs_of_run_newest_end --
SELECT min(s.seq), count(*)
  FROM (SELECT i.seq FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND {of_run} AND i.status = :status
           AND i.seq < :edge ORDER BY i.seq DESC LIMIT :scan) AS s

-- jobs_of_run_oldest --
-- Jobs of one run and status.
SELECT {job}
  FROM (SELECT * FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND {of_run} AND i.status = :status
           AND i.seq > :edge ORDER BY i.seq LIMIT :scan) AS j
 WHERE {job_filter}
 ORDER BY j.seq LIMIT :many

-- jobs_of_run_oldest_end --
SELECT max(s.seq), count(*)
  FROM (SELECT i.seq FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND {of_run} AND i.status = :status
           AND i.seq > :edge ORDER BY i.seq LIMIT :scan) AS s

-- jobs_of_work_newest --
-- Jobs of one work that is not just a URL.
SELECT {job} FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.work_id = :work_id AND j.seq < :edge
   AND (CAST(:statuses AS TEXT) IS NULL OR j.status IN (SELECT value FROM {each statuses})) AND {job_filter}
 ORDER BY j.seq DESC LIMIT :many

-- jobs_of_work_newest @postgres --
SELECT {job} FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.work_hash = text_hash(:work_id)
   AND j.seq < :edge
   AND (CAST(:statuses AS jsonb) IS NULL OR CAST(:statuses AS jsonb) ? j.status) AND {job_filter}
 ORDER BY j.seq DESC LIMIT :many

-- jobs_of_work_oldest --
SELECT {job} FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.work_id = :work_id AND j.seq > :edge
   AND (CAST(:statuses AS TEXT) IS NULL OR j.status IN (SELECT value FROM {each statuses})) AND {job_filter}
 ORDER BY j.seq LIMIT :many

-- jobs_of_work_oldest @postgres --
SELECT {job} FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.work_hash = text_hash(:work_id)
   AND j.seq > :edge
   AND (CAST(:statuses AS jsonb) IS NULL OR CAST(:statuses AS jsonb) ? j.status) AND {job_filter}
 ORDER BY j.seq LIMIT :many

-- jobs_of_labels_newest --
-- Jobs with given parameters, or with results that have given metadata.
SELECT {job}
  FROM (SELECT p.job_id FROM job_params AS p
         WHERE :kind = 'param' AND p.tenant_id = :tenant_id AND p.project_id = :project_id AND p.name = :label AND p.value = :value
         UNION
        SELECT r.job_id FROM artifact_metadata AS m
          JOIN job_artifacts AS r ON r.tenant_id = m.tenant_id AND r.project_id = m.project_id AND r.artifact_id = m.artifact_id
           AND r.role = 'result'
         WHERE :kind = 'metadata' AND m.tenant_id = :tenant_id AND m.project_id = :project_id AND m.name = :label
           AND m.value = :value) AS w
  CROSS JOIN jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = w.job_id AND j.seq < :edge
   AND j.status IN (SELECT value FROM {each statuses}) AND {job_filter}
   AND NOT EXISTS (SELECT 1 FROM {each other_params} WHERE value NOT IN (
     SELECT length(x.name) || ':' || x.name || x.value FROM job_params AS x
      WHERE x.tenant_id = :tenant_id AND x.project_id = :project_id AND x.job_id = j.job_id))
   AND NOT EXISTS (SELECT 1 FROM {each other_metadata} WHERE value NOT IN (
     SELECT length(y.name) || ':' || y.name || y.value FROM job_artifacts AS s
       JOIN artifact_metadata AS y ON y.tenant_id = s.tenant_id AND y.project_id = s.project_id AND y.artifact_id = s.artifact_id
      WHERE s.tenant_id = :tenant_id AND s.project_id = :project_id AND s.job_id = j.job_id AND s.role = 'result'))
 ORDER BY j.seq DESC LIMIT :many

-- jobs_of_labels_oldest --
-- Jobs with given parameters, or with results that have given metadata.
SELECT {job}
  FROM (SELECT p.job_id FROM job_params AS p
         WHERE :kind = 'param' AND p.tenant_id = :tenant_id AND p.project_id = :project_id AND p.name = :label AND p.value = :value
         UNION
        SELECT r.job_id FROM artifact_metadata AS m
          JOIN job_artifacts AS r ON r.tenant_id = m.tenant_id AND r.project_id = m.project_id AND r.artifact_id = m.artifact_id
           AND r.role = 'result'
         WHERE :kind = 'metadata' AND m.tenant_id = :tenant_id AND m.project_id = :project_id AND m.name = :label
           AND m.value = :value) AS w
  CROSS JOIN jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = w.job_id AND j.seq > :edge
   AND j.status IN (SELECT value FROM {each statuses}) AND {job_filter}
   AND NOT EXISTS (SELECT 1 FROM {each other_params} WHERE value NOT IN (
     SELECT length(x.name) || ':' || x.name || x.value FROM job_params AS x
      WHERE x.tenant_id = :tenant_id AND x.project_id = :project_id AND x.job_id = j.job_id))
   AND NOT EXISTS (SELECT 1 FROM {each other_metadata} WHERE value NOT IN (
     SELECT length(y.name) || ':' || y.name || y.value FROM job_artifacts AS s
       JOIN artifact_metadata AS y ON y.tenant_id = s.tenant_id AND y.project_id = s.project_id AND y.artifact_id = s.artifact_id
      WHERE s.tenant_id = :tenant_id AND s.project_id = :project_id AND s.job_id = j.job_id AND s.role = 'result'))
 ORDER BY j.seq LIMIT :many

-- failures_left --
SELECT COALESCE(sum(n), 0) FROM failure_counts WHERE tenant_id = :tenant_id AND project_id = :project_id

-- failure_groups --
-- Failed jobs without a retry, counted by reason and host, with the newest of each as an example.
SELECT g.error_code, g.host, g.n, j.job_id, COALESCE(j.url, j.canonical_url), j.error_message_safe, j.failed_at
  FROM (SELECT f.error_code, f.host, sum(f.n) AS n FROM failure_counts AS f
         WHERE f.tenant_id = :tenant_id AND f.project_id = :project_id
         GROUP BY f.error_code, f.host HAVING sum(f.n) > 0 ORDER BY sum(f.n) DESC, f.error_code, f.host LIMIT :many OFFSET :skip) AS g
  JOIN jobs AS j ON j.seq = (SELECT max(k.seq) FROM jobs AS k WHERE k.tenant_id = :tenant_id AND k.project_id = :project_id
     AND k.error_code = g.error_code AND k.host = g.host AND k.status = 'failed' AND k.superseded = 0)
 ORDER BY g.n DESC, g.error_code, g.host

-- failure_groups @postgres --
SELECT g.error_code, g.host, g.n, j.job_id, COALESCE(j.url, j.canonical_url), j.error_message_safe, j.failed_at
  FROM (SELECT f.error_code, f.host, sum(f.n) AS n FROM failure_counts AS f
         WHERE f.tenant_id = :tenant_id AND f.project_id = :project_id
         GROUP BY f.error_code, f.host HAVING sum(f.n) > 0 ORDER BY sum(f.n) DESC, f.error_code, f.host LIMIT :many OFFSET :skip) AS g
 CROSS JOIN LATERAL (SELECT k.* FROM jobs AS k WHERE k.tenant_id = :tenant_id AND k.project_id = :project_id
     AND k.error_code = g.error_code AND k.host = g.host AND k.status = 'failed' AND k.superseded = 0
   ORDER BY k.seq DESC LIMIT 1) AS j
 ORDER BY g.n DESC, g.error_code, g.host

-- job_events --
-- Of an archived history only the end is left.
SELECT seq, at, job_id, kind, facts FROM events
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id
UNION ALL
SELECT 0, COALESCE(j.completed_at, s.archived_at), s.job_id, j.status, s.facts FROM job_summaries AS s
  JOIN jobs AS j ON j.tenant_id = s.tenant_id AND j.project_id = s.project_id AND j.job_id = s.job_id
 WHERE s.tenant_id = :tenant_id AND s.project_id = :project_id AND s.job_id = :job_id
 ORDER BY 1 LIMIT :many

-- job_grants --
SELECT epoch, owner, host, claimed_at, ended_at, outcome, reason FROM job_claims
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id
 ORDER BY epoch LIMIT :many

-- job_effects --
SELECT {effect} FROM effects AS e
 WHERE e.tenant_id = :tenant_id AND e.project_id = :project_id AND e.job_id = :job_id
 ORDER BY e.started_at, e.op_key LIMIT :many

-- events_after --
SELECT seq, at, job_id, kind, facts FROM events
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND seq > :seq
 ORDER BY seq LIMIT :many

-- events_after @postgres --
-- The highest event number below which no event can still appear: open transactions may hold lower numbers.
SELECT seq, at, job_id, kind, facts FROM events
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND seq > :seq AND seq < events_horizon()
 ORDER BY seq LIMIT :many

-- last_event --
SELECT max(seq) FROM events WHERE tenant_id = :tenant_id AND project_id = :project_id

-- last_event @postgres --
SELECT max(seq) FROM events WHERE tenant_id = :tenant_id AND project_id = :project_id AND seq < events_horizon()

-- artifact_row --
SELECT {artifact} FROM artifacts AS a
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.artifact_id = :artifact_id

-- artifacts_newest --
-- Artifacts, newest first, among the next `scan` of them.
SELECT {artifact}
  FROM (SELECT * FROM artifacts AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND i.artifact_id < :edge
         ORDER BY i.artifact_id DESC LIMIT :scan) AS a
 WHERE (CAST(:artifact_type AS TEXT) IS NULL OR a.artifact_type = :artifact_type)
   AND (CAST(:availability AS TEXT) IS NULL OR a.availability = :availability)
 ORDER BY a.artifact_id DESC LIMIT :many

-- artifacts_newest_end --
SELECT min(s.artifact_id), count(*)
  FROM (SELECT i.artifact_id FROM artifacts AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND i.artifact_id < :edge ORDER BY i.artifact_id DESC LIMIT :scan) AS s

-- {artifact_filter} --
(CAST(:artifact_type AS TEXT) IS NULL OR a.artifact_type = :artifact_type)
   AND (CAST(:availability AS TEXT) IS NULL OR a.availability = :availability)
   AND (CAST(:sha256 AS TEXT) IS NULL OR a.sha256 = :sha256)

-- artifacts_of_hash --
SELECT {artifact} FROM artifacts AS a
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.sha256 = :sha256 AND a.artifact_id < :edge
   AND {artifact_filter}
 ORDER BY a.artifact_id DESC LIMIT :many

-- artifacts_of_url --
-- The versions of a URL: the current one, then the earlier ones along the chain.
WITH RECURSIVE v (artifact_id, previous_id) AS (
  SELECT a.artifact_id, a.previous_id FROM url_versions AS u
    JOIN artifacts AS a ON a.tenant_id = u.tenant_id AND a.project_id = u.project_id AND a.artifact_id = u.artifact_id
   WHERE u.tenant_id = :tenant_id AND u.project_id = :project_id AND u.canonical_url = :url
  UNION
  SELECT p.artifact_id, p.previous_id FROM v
    JOIN artifacts AS p ON p.tenant_id = :tenant_id AND p.project_id = :project_id AND p.artifact_id = v.previous_id)
SELECT {artifact} FROM v
  JOIN artifacts AS a ON a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.artifact_id = v.artifact_id
 WHERE a.artifact_id < :edge AND {artifact_filter}
 ORDER BY a.artifact_id DESC LIMIT :many

-- artifacts_of_url @postgres --
WITH RECURSIVE v (artifact_id, previous_id) AS (
  SELECT a.artifact_id, a.previous_id FROM url_versions AS u
    JOIN artifacts AS a ON a.tenant_id = u.tenant_id AND a.project_id = u.project_id AND a.artifact_id = u.artifact_id
   WHERE u.tenant_id = :tenant_id AND u.project_id = :project_id AND u.url_hash = text_hash(:url)
  UNION
  SELECT p.artifact_id, p.previous_id FROM v
    JOIN artifacts AS p ON p.tenant_id = :tenant_id AND p.project_id = :project_id AND p.artifact_id = v.previous_id)
SELECT {artifact} FROM v
  JOIN artifacts AS a ON a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.artifact_id = v.artifact_id
 WHERE a.artifact_id < :edge AND {artifact_filter}
 ORDER BY a.artifact_id DESC LIMIT :many

-- artifacts_of_label --
-- Artifacts with given metadata.
SELECT {artifact} FROM artifact_metadata AS m
  JOIN artifacts AS a ON a.tenant_id = m.tenant_id AND a.project_id = m.project_id AND a.artifact_id = m.artifact_id
 WHERE m.tenant_id = :tenant_id AND m.project_id = :project_id AND m.name = :label AND m.value = :value
   AND m.artifact_id < :edge AND {artifact_filter}
   AND NOT EXISTS (SELECT 1 FROM {each others} WHERE value NOT IN (
     SELECT length(x.name) || ':' || x.name || x.value FROM artifact_metadata AS x
      WHERE x.tenant_id = :tenant_id AND x.project_id = :project_id AND x.artifact_id = a.artifact_id))
 ORDER BY m.artifact_id DESC LIMIT :many

-- artifacts_of_work --
SELECT DISTINCT {artifact} FROM jobs AS j
  JOIN job_artifacts AS r ON r.tenant_id = j.tenant_id AND r.project_id = j.project_id AND r.job_id = j.job_id AND r.role = 'result'
  JOIN artifacts AS a ON a.tenant_id = r.tenant_id AND a.project_id = r.project_id AND a.artifact_id = r.artifact_id
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.work_id = :work_id AND a.artifact_id < :edge
   AND {artifact_filter}
 ORDER BY a.artifact_id DESC LIMIT :many

-- artifacts_of_work @postgres --
SELECT DISTINCT {artifact} FROM jobs AS j
  JOIN job_artifacts AS r ON r.tenant_id = j.tenant_id AND r.project_id = j.project_id AND r.job_id = j.job_id AND r.role = 'result'
  JOIN artifacts AS a ON a.tenant_id = r.tenant_id AND a.project_id = r.project_id AND a.artifact_id = r.artifact_id
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.work_hash = text_hash(:work_id)
   AND a.artifact_id < :edge AND {artifact_filter}
 ORDER BY a.artifact_id DESC LIMIT :many

-- artifact_links --
-- Every job that led to an artifact or used it.
SELECT r.job_id, r.role, COALESCE(j.url, j.canonical_url), COALESCE(j.work_id, j.canonical_url),
       COALESCE(j.completed_at, j.updated_at), j.job_type
  FROM job_artifacts AS r
  JOIN jobs AS j ON j.tenant_id = r.tenant_id AND j.project_id = r.project_id AND j.job_id = r.job_id
 WHERE r.tenant_id = :tenant_id AND r.project_id = :project_id AND r.artifact_id = :artifact_id
 LIMIT :many

-- oldest_ready --
-- How long the longest waiting job has waited, among the oldest pending ones.
SELECT min(s.created_at)
  FROM (SELECT i.created_at, i.ready FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
           AND i.status = 'pending' ORDER BY i.seq LIMIT 1000) AS s
 WHERE s.ready = 1

-- workers --
-- The owners of live leases, over all tenants.
SELECT lease_owner, count(*), min(lease_until) FROM jobs
 WHERE lease_until IS NOT NULL GROUP BY lease_owner ORDER BY lease_owner LIMIT 10000

-- workers @postgres --
SELECT owner, leases, until FROM dispatch_workers(0)

-- same_bytes --
-- Every job that came to the same bytes, under whichever artifact, oldest first.
SELECT r.job_id, r.role, COALESCE(j.url, j.canonical_url), COALESCE(j.work_id, j.canonical_url),
       COALESCE(j.completed_at, j.updated_at), j.job_type, j.status, r.artifact_id
  FROM artifacts AS s
  JOIN job_artifacts AS r ON r.tenant_id = s.tenant_id AND r.project_id = s.project_id AND r.artifact_id = s.artifact_id
   AND r.role = 'result'
  JOIN jobs AS j ON j.tenant_id = r.tenant_id AND j.project_id = r.project_id AND j.job_id = r.job_id
 WHERE s.tenant_id = :tenant_id AND s.project_id = :project_id AND s.sha256 = :sha256
 ORDER BY r.job_id LIMIT :many

-- reusing --
-- Jobs that were answered by another job's result.
SELECT j.job_id, 'result', COALESCE(j.url, j.canonical_url), COALESCE(j.work_id, j.canonical_url),
       COALESCE(j.completed_at, j.updated_at), j.job_type, j.status, NULL
  FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.reuse_of_job_id IN (SELECT value FROM {each job_ids})
 ORDER BY j.job_id LIMIT :many

-- retried_as --
-- The newest job that tries another one again.
SELECT job_id FROM jobs
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND retry_of = :job_id ORDER BY seq DESC LIMIT 1

-- projects_of --
-- The projects of a tenant that ever had a job or an artifact.
SELECT DISTINCT c.project_id FROM counters AS c WHERE c.tenant_id = :tenant_id ORDER BY c.project_id
