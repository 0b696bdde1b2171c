-- Each statement finds violations: a sound ledger returns no rows. Columns: tenant_id, project_id, subject, detail.
-- The statement's name is the finding's name; its comment is shown to the user. Both databases run the same text.

-- job_stuck --
-- An unfinished job is neither leased, nor ready, nor waiting: no worker would ever claim it.
SELECT tenant_id, project_id, job_id, status || ' ' || stage FROM jobs
 WHERE status IN ('pending', 'processing') AND job_type <> 'torrent'
   AND ready = 0 AND lease_owner IS NULL AND next_attempt_at IS NULL;

-- lane_closed --
-- A job is ready in a lane that says it has none: no claim would find it.
SELECT j.tenant_id, j.project_id, j.job_id, l.host FROM jobs j JOIN lanes l ON l.lane_id = j.lane_id
 WHERE j.ready = 1 AND l.ready = 0;

-- lane_wrong --
-- A job stands in a lane of another tenant, project, host or type.
SELECT j.tenant_id, j.project_id, j.job_id, l.host FROM jobs j JOIN lanes l ON l.lane_id = j.lane_id
 WHERE j.tenant_id <> l.tenant_id OR j.project_id <> l.project_id OR j.job_type <> l.job_type OR j.host <> l.host;

-- lease_on_finished --
-- A job that is over still has a lease.
SELECT tenant_id, project_id, job_id, status FROM jobs
 WHERE status NOT IN ('pending', 'processing') AND (lease_owner IS NOT NULL OR lease_until IS NOT NULL);

-- stage_unlike_status --
-- A job's stage and status do not belong together.
SELECT tenant_id, project_id, job_id, status || ' ' || stage FROM jobs
 WHERE stage <> 'canceled' AND status <> CASE job_type
   WHEN 'download' THEN CASE stage WHEN 'PLANNED' THEN 'pending' WHEN 'INDEXED' THEN 'completed' WHEN 'DEDUPED' THEN 'completed'
     WHEN 'SKIPPED_DUPLICATE' THEN 'skipped' WHEN 'FAILED' THEN 'failed' ELSE 'processing' END
   WHEN 'torrent' THEN CASE stage WHEN 'queued' THEN 'pending' WHEN 'downloading' THEN 'processing' ELSE stage END
   ELSE status END
    OR (stage = 'canceled' AND status <> 'canceled');

-- attempts_over --
-- A job was tried more often than it may be.
SELECT tenant_id, project_id, job_id, attempts || ' of ' || max_attempts FROM jobs
 WHERE max_attempts IS NOT NULL AND attempts > max_attempts;

-- result_twice --
-- A download or upload has more than one result.
SELECT j.tenant_id, j.project_id, j.job_id, 'results ' || COUNT(*) FROM jobs j
  JOIN job_artifacts a ON a.tenant_id = j.tenant_id AND a.project_id = j.project_id AND a.job_id = j.job_id AND a.role = 'result'
 WHERE j.job_type IN ('download', 'upload')
 GROUP BY j.tenant_id, j.project_id, j.job_id HAVING COUNT(*) > 1;

-- result_missing --
-- A completed job has no result.
SELECT j.tenant_id, j.project_id, j.job_id, j.job_type FROM jobs j
 WHERE j.status = 'completed' AND j.job_type IN ('download', 'torrent', 'upload')
   AND NOT EXISTS (SELECT 1 FROM job_artifacts a
     WHERE a.tenant_id = j.tenant_id AND a.project_id = j.project_id AND a.job_id = j.job_id AND a.role = 'result')
   AND NOT EXISTS (SELECT 1 FROM events e WHERE e.tenant_id = j.tenant_id AND e.project_id = j.project_id
     AND e.job_id = j.job_id AND e.kind = 'artifact_deleted');

-- reuse_dangling --
-- A skipped job refers to a job that has no result.
SELECT j.tenant_id, j.project_id, j.job_id, j.reuse_of_job_id FROM jobs j
 WHERE j.status = 'skipped'
   AND NOT EXISTS (SELECT 1 FROM job_artifacts a
     WHERE a.tenant_id = j.tenant_id AND a.project_id = j.project_id AND a.job_id = j.reuse_of_job_id AND a.role = 'result')
   AND NOT EXISTS (SELECT 1 FROM events e WHERE e.tenant_id = j.tenant_id AND e.project_id = j.project_id
     AND e.job_id = j.reuse_of_job_id AND e.kind = 'artifact_deleted');

-- key_twice --
-- Two jobs that are both current have one key.
SELECT tenant_id, project_id, MIN(job_id), idempotency_key FROM jobs
 WHERE idempotency_key IS NOT NULL AND superseded = 0
 GROUP BY tenant_id, project_id, job_type, idempotency_key HAVING COUNT(*) > 1;

-- epoch_gap --
-- The grants of a job are not numbered one by one up to its epoch.
SELECT j.tenant_id, j.project_id, j.job_id, 'epoch ' || j.lease_epoch || ', grants ' || COUNT(c.epoch)
  FROM jobs j LEFT JOIN job_claims c ON c.tenant_id = j.tenant_id AND c.project_id = j.project_id AND c.job_id = j.job_id
 WHERE NOT EXISTS (SELECT 1 FROM job_summaries s WHERE s.tenant_id = j.tenant_id AND s.project_id = j.project_id
     AND s.job_id = j.job_id)
 GROUP BY j.tenant_id, j.project_id, j.job_id, j.lease_epoch
HAVING COUNT(c.epoch) <> j.lease_epoch OR COALESCE(MAX(c.epoch), 0) <> j.lease_epoch;

-- claim_open --
-- A grant has not ended although the job has no lease or a newer one.
SELECT c.tenant_id, c.project_id, c.job_id, 'epoch ' || c.epoch FROM job_claims c
  JOIN jobs j ON j.tenant_id = c.tenant_id AND j.project_id = c.project_id AND j.job_id = c.job_id
 WHERE c.ended_at IS NULL AND (j.lease_owner IS NULL OR j.lease_epoch <> c.epoch);

-- claim_after_end --
-- A job that is over was ended by something else than its last grant.
SELECT c.tenant_id, c.project_id, c.job_id, c.outcome FROM job_claims c
  JOIN jobs j ON j.tenant_id = c.tenant_id AND j.project_id = c.project_id AND j.job_id = c.job_id
 WHERE c.epoch < j.lease_epoch AND c.outcome IN ('completed', 'skipped', 'failed', 'canceled');

-- effect_ahead --
-- An effect was recorded under an epoch that was never granted.
SELECT e.tenant_id, e.project_id, e.job_id, e.kind FROM effects e
  JOIN jobs j ON j.tenant_id = e.tenant_id AND j.project_id = e.project_id AND j.job_id = e.job_id
 WHERE e.epoch > j.lease_epoch;

-- effect_open --
-- A job is over, and an effect of it has begun and not ended.
SELECT e.tenant_id, e.project_id, e.job_id, e.kind FROM effects e
  JOIN jobs j ON j.tenant_id = e.tenant_id AND j.project_id = e.project_id AND j.job_id = e.job_id
 WHERE e.state = 'intended' AND j.status IN ('completed', 'skipped');

-- effect_unlike_grant --
-- A FINALIZE was confirmed under a grant that did not complete the job.
SELECT e.tenant_id, e.project_id, e.job_id, 'epoch ' || e.epoch || ' ' || COALESCE(c.outcome, 'open') FROM effects e
  JOIN job_claims c ON c.tenant_id = e.tenant_id AND c.project_id = e.project_id AND c.job_id = e.job_id AND c.epoch = e.epoch
 WHERE e.kind = 'FINALIZE' AND e.state = 'confirmed' AND COALESCE(c.outcome, 'open') <> 'completed';

-- finalize_unconfirmed --
-- A download is completed without a confirmed FINALIZE of its last grant.
SELECT j.tenant_id, j.project_id, j.job_id, j.stage FROM jobs j
 WHERE j.job_type = 'download' AND j.status = 'completed' AND j.lease_epoch > 0
   AND NOT EXISTS (SELECT 1 FROM effects e WHERE e.tenant_id = j.tenant_id AND e.project_id = j.project_id
     AND e.job_id = j.job_id AND e.kind = 'FINALIZE' AND e.state = 'confirmed')
   AND NOT EXISTS (SELECT 1 FROM job_summaries s WHERE s.tenant_id = j.tenant_id AND s.project_id = j.project_id
     AND s.job_id = j.job_id);

-- blob_unlike_artifact --
-- An artifact and its blob differ in size, backend or pointer.
SELECT a.tenant_id, a.project_id, a.artifact_id, b.sha256 FROM artifacts a
  JOIN blobs b ON b.tenant_id = a.tenant_id AND b.project_id = a.project_id AND b.sha256 = a.sha256
 WHERE a.byte_size <> b.byte_size;

-- blob_unknown --
-- An artifact names bytes that the hash index does not know.
SELECT a.tenant_id, a.project_id, a.artifact_id, a.sha256 FROM artifacts a
 WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.tenant_id = a.tenant_id AND b.project_id = a.project_id AND b.sha256 = a.sha256);

-- version_dangling --
-- A URL's last version names an artifact that does not exist or has other bytes.
SELECT v.tenant_id, v.project_id, v.artifact_id, 'url version' FROM url_versions v
  LEFT JOIN artifacts a ON a.tenant_id = v.tenant_id AND a.project_id = v.project_id AND a.artifact_id = v.artifact_id
 WHERE a.artifact_id IS NULL OR a.sha256 <> v.sha256;

-- counter_wrong --
-- A counter differs from what there is to count.
SELECT tenant_id, project_id, status, 'counted ' || SUM(counted) || ', there are ' || SUM(there) FROM (
  SELECT tenant_id, project_id, status, n AS counted, 0 AS there FROM counters
   WHERE status IN ('pending', 'processing', 'completed', 'failed', 'skipped', 'canceled')
  UNION ALL SELECT tenant_id, project_id, status, 0, 1 FROM jobs) AS both_sides
 GROUP BY tenant_id, project_id, status HAVING SUM(counted) <> SUM(there);

-- failure_count_wrong --
-- The number of failures by reason and host differs from the failed jobs there are.
SELECT tenant_id, project_id, error_code || ' at ' || host, 'counted ' || SUM(counted) || ', there are ' || SUM(there) FROM (
  SELECT tenant_id, project_id, error_code, host, n AS counted, 0 AS there FROM failure_counts
  UNION ALL SELECT tenant_id, project_id, error_code, host, 0, 1 FROM jobs WHERE status = 'failed' AND superseded = 0) AS both_sides
 GROUP BY tenant_id, project_id, error_code, host HAVING SUM(counted) <> SUM(there);

-- book_state_wrong --
-- A book is in the library without an available asset, or in the archive with one.
SELECT b.tenant_id, b.project_id, b.book_id, b.state FROM books b
 WHERE (b.state = 'Library') <> EXISTS (SELECT 1 FROM media_assets m
   WHERE m.tenant_id = b.tenant_id AND m.project_id = b.project_id AND m.book_id = b.book_id AND m.status = 'available');

-- torrent_without_asset --
-- A completed torrent has no available asset for its book.
SELECT j.tenant_id, j.project_id, j.job_id, j.book_id FROM jobs j
 WHERE j.job_type = 'torrent' AND j.status = 'completed' AND j.book_id IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM media_assets m
     WHERE m.tenant_id = j.tenant_id AND m.project_id = j.project_id AND m.book_id = j.book_id AND m.media_type = j.media_type);

-- history_goes_on --
-- A status event stands after the one that ended the job.
SELECT e.tenant_id, e.project_id, e.job_id, e.kind FROM events e
  JOIN events t ON t.tenant_id = e.tenant_id AND t.project_id = e.project_id AND t.job_id = e.job_id AND t.seq < e.seq
 WHERE t.kind IN ('completed', 'failed', 'skipped', 'canceled')
   AND e.kind IN ('completed', 'failed', 'skipped', 'canceled', 'deferred', 'released', 'expired');

-- end_without_event --
-- A job is over and its history does not say so.
SELECT j.tenant_id, j.project_id, j.job_id, j.status FROM jobs j
 WHERE j.status NOT IN ('pending', 'processing')
   AND NOT EXISTS (SELECT 1 FROM events e WHERE e.tenant_id = j.tenant_id AND e.project_id = j.project_id
     AND e.job_id = j.job_id AND e.kind = j.status)
   AND NOT EXISTS (SELECT 1 FROM job_summaries s WHERE s.tenant_id = j.tenant_id AND s.project_id = j.project_id
     AND s.job_id = j.job_id);
