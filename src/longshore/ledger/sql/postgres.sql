-- The statements that differ on PostgreSQL, for three reasons: statements that see all tenants call functions of the
-- dispatcher role; rows that are read in order to be written are locked; bulk statements take their rows as arrays.

-- open_tenants @postgres --
SELECT tenant_id FROM dispatch_open_tenants(:after, :many)

-- open_lanes @postgres --
SELECT lane_id, host, top FROM dispatch_open_lanes(:tenant_id, :project_id, CAST(:job_types AS jsonb), :many)

-- lane_heads @postgres --
SELECT {job} FROM dispatch_lane_heads(:lane_id, :many) AS j

-- named_heads @postgres --
SELECT {job}
  FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = ANY (ARRAY(SELECT value FROM {each job_ids}))
   AND (j.status = 'pending' OR j.status = 'processing') AND j.lease_owner IS NULL AND j.next_attempt_at IS NULL
   AND CASE WHEN CAST(:job_types AS jsonb) IS NULL THEN j.ready = 1 ELSE CAST(:job_types AS jsonb) ? j.job_type END
 ORDER BY j.priority DESC, j.seq
 LIMIT :many
   FOR NO KEY UPDATE OF j SKIP LOCKED

-- lane_served (turn, top, ready, lane_id) @postgres --
-- The function reads the lane's remaining jobs itself (other workers claim from it, too), so top and ready are unused.
SELECT dispatch_lanes_served(CAST(:turn AS bigint[]), CAST(:lane_id AS bigint[]))

-- lane_park (parked_until, lane_id) @postgres --
SELECT dispatch_park(CAST(:parked_until AS bigint[]), CAST(:lane_id AS bigint[]))

-- lane_ready (top, lane_id) @postgres --
SELECT dispatch_mark_lanes(CAST(:top AS bigint[]), CAST(:lane_id AS bigint[]))

-- lane_put (tenant_id, project_id, host, job_type, ready, top) @postgres --
SELECT lane_id, host, job_type
  FROM lanes_put(CAST(:tenant_id AS text[]), CAST(:project_id AS text[]), CAST(:host AS text[]), CAST(:job_type AS text[]),
                 CAST(:ready AS bigint[]), CAST(:top AS bigint[]))

-- lanes_unpark_due (now) @postgres --
SELECT dispatch_unpark_due(:now)

-- lanes_unpark_hosts (host) @postgres --
SELECT dispatch_unpark_hosts(CAST(:host AS text[]))

-- host_facts @postgres --
-- Held until the end of the transaction, so that two claims do not count the same free slot.
SELECT {host}
  FROM hosts_held(CAST(:hosts AS jsonb))

-- host_uses @postgres --
SELECT slot_host, lease_owner, leases, slots, until FROM dispatch_host_uses(CAST(:hosts AS jsonb), :now)

-- expired_leases @postgres --
SELECT {given} FROM dispatch_expired(:now, :many) AS j

-- leases_of @postgres --
SELECT {given} FROM dispatch_leases_of(CAST(:owners AS jsonb), :many) AS j

-- promote_waiting @postgres --
SELECT lane_id, priority FROM dispatch_promote(:now, :many)

-- next_due @postgres --
SELECT dispatch_next_due(:now)

-- jobs_forgotten @postgres --
SELECT seq, lane_id, priority FROM dispatch_jobs_forgotten(:many)

-- job_ready (seq) @postgres --
SELECT dispatch_jobs_ready(CAST(:seq AS bigint[]))

-- lanes_forgotten @postgres --
SELECT lane_id, priority FROM dispatch_lanes_forgotten()

-- count_wrong @postgres --
SELECT tenant_id, project_id, status, n FROM dispatch_count_wrong()

-- effects_stale @postgres --
SELECT dispatch_effects_stale(:now, false)

-- effects_stale_opaque @postgres --
SELECT dispatch_effects_stale(:now, true)

-- count_add (tenant_id, project_id, status, n) @postgres --
-- Connections have slots of their own, so that they do not queue for one row.
INSERT INTO counters (tenant_id, project_id, status, slot, n)
SELECT r.tenant_id, r.project_id, r.status, pg_backend_pid() % 32, r.n
  FROM unnest(CAST(:tenant_id AS text[]), CAST(:project_id AS text[]), CAST(:status AS text[]), CAST(:n AS bigint[]))
    AS r (tenant_id, project_id, status, n)
 ORDER BY 1, 2, 3
ON CONFLICT (tenant_id, project_id, status, slot) DO UPDATE SET n = counters.n + excluded.n

-- control_rows @postgres --
SELECT j.job_id, j.seq, j.status, j.stage, j.lease_owner, j.cancel_requested_at
  FROM jobs AS j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = ANY (ARRAY(SELECT value FROM {each job_ids}))
 ORDER BY j.seq
   FOR NO KEY UPDATE OF j

-- fence (tenant_id, project_id, job_id, lease_epoch, lease_owner, now) @postgres --
-- Lock the row, so that no other worker can take over the lease between this query and the write.
SELECT j.job_id, j.seq, j.stage, j.status, j.job_type, j.attempts, j.lane_id, j.priority, j.host, j.slot_host,
       j.canonical_url, j.cancel_requested_at, j.lease_epoch
  FROM unnest(CAST(:tenant_id AS text[]), CAST(:project_id AS text[]), CAST(:job_id AS text[]), CAST(:lease_epoch AS bigint[]),
              CAST(:lease_owner AS text[]), CAST(:now AS bigint[])) AS r (tenant_id, project_id, job_id, epoch, owner, now)
  JOIN jobs AS j ON j.tenant_id = r.tenant_id AND j.project_id = r.project_id AND j.job_id = r.job_id
   AND j.lease_epoch = r.epoch AND j.lease_owner = r.owner AND j.lease_until > r.now
 ORDER BY j.seq
   FOR NO KEY UPDATE OF j

-- renew (until, now, tenant_id, project_id, job_id, lease_epoch, lease_owner) @postgres --
WITH held AS MATERIALIZED (
  SELECT j.seq, r.until, r.now
    FROM unnest(CAST(:until AS bigint[]), CAST(:now AS bigint[]), CAST(:tenant_id AS text[]), CAST(:project_id AS text[]),
                CAST(:job_id AS text[]), CAST(:lease_epoch AS bigint[]), CAST(:lease_owner AS text[]))
      AS r (until, now, tenant_id, project_id, job_id, epoch, owner)
    JOIN jobs AS j ON j.tenant_id = r.tenant_id AND j.project_id = r.project_id AND j.job_id = r.job_id
     AND j.lease_epoch = r.epoch AND j.lease_owner = r.owner AND j.lease_until > r.now
   ORDER BY j.seq
     FOR NO KEY UPDATE OF j)
UPDATE jobs AS j SET lease_until = held.until, updated_at = held.now FROM held WHERE j.seq = held.seq
RETURNING j.job_id, j.lease_epoch, j.cancel_requested_at

-- grant (owner, until, slot_host, lease_slots, stage, counts, now, seq) @postgres --
UPDATE jobs AS j
   SET lease_owner = r.owner, lease_until = r.until, lease_epoch = j.lease_epoch + 1, slot_host = r.slot_host,
       lease_slots = r.lease_slots, ready = 0, status = 'processing',
       stage = r.stage, claims = j.claims + r.counts, progress = NULL, bytes_done = NULL,
       bytes_total = NULL, updated_at = r.now, row_version = j.row_version + 1
  FROM unnest(CAST(:owner AS text[]), CAST(:until AS bigint[]), CAST(:slot_host AS text[]), CAST(:lease_slots AS bigint[]),
              CAST(:stage AS text[]), CAST(:counts AS bigint[]), CAST(:now AS bigint[]), CAST(:seq AS bigint[]))
    AS r (owner, until, slot_host, lease_slots, stage, counts, now, seq)
 WHERE j.seq = r.seq AND j.lease_owner IS NULL

-- claim_insert (tenant_id, project_id, job_id, epoch, owner, host, now) @postgres --
INSERT INTO job_claims (tenant_id, project_id, job_id, epoch, owner, host, claimed_at)
SELECT * FROM unnest(CAST(:tenant_id AS text[]), CAST(:project_id AS text[]), CAST(:job_id AS text[]), CAST(:epoch AS bigint[]),
                     CAST(:owner AS text[]), CAST(:host AS text[]), CAST(:now AS bigint[]))

-- claim_end (now, outcome, reason, tenant_id, project_id, job_id, epoch) @postgres --
UPDATE job_claims AS c SET ended_at = r.now, outcome = r.outcome, reason = r.reason
  FROM unnest(CAST(:now AS bigint[]), CAST(:outcome AS text[]), CAST(:reason AS text[]), CAST(:tenant_id AS text[]),
              CAST(:project_id AS text[]), CAST(:job_id AS text[]), CAST(:epoch AS bigint[]))
    AS r (now, outcome, reason, tenant_id, project_id, job_id, epoch)
 WHERE c.tenant_id = r.tenant_id AND c.project_id = r.project_id AND c.job_id = r.job_id AND c.epoch = r.epoch
   AND c.ended_at IS NULL

-- end_completed (stage, attempts, now, seq, lease_epoch) @postgres --
UPDATE jobs AS j
   SET status = 'completed', stage = r.stage, lease_owner = NULL, lease_until = NULL, slot_host = NULL, lease_slots = NULL,
       progress = 100, bytes_done = j.bytes_total, attempts = j.attempts + r.attempts, completed_at = r.now, updated_at = r.now, error_code = NULL,
       error_message_safe = NULL, error_debug_id = NULL, row_version = j.row_version + 1
  FROM unnest(CAST(:stage AS text[]), CAST(:attempts AS bigint[]), CAST(:now AS bigint[]), CAST(:seq AS bigint[]),
              CAST(:lease_epoch AS bigint[])) AS r (stage, attempts, now, seq, epoch)
 WHERE j.seq = r.seq AND j.lease_epoch = r.epoch

-- move_stage (stage, counts, now, seq, lease_epoch) @postgres --
UPDATE jobs AS j SET stage = r.stage, claims = j.claims + r.counts, updated_at = r.now, row_version = j.row_version + 1
  FROM unnest(CAST(:stage AS text[]), CAST(:counts AS bigint[]), CAST(:now AS bigint[]), CAST(:seq AS bigint[]),
              CAST(:lease_epoch AS bigint[])) AS r (stage, counts, now, seq, epoch)
 WHERE j.seq = r.seq AND j.lease_epoch = r.epoch

-- move_finalized (counts, now, seq, lease_epoch) @postgres --
UPDATE jobs AS j SET stage = 'FINALIZED', claims = j.claims + r.counts, slot_host = NULL, updated_at = r.now,
       row_version = j.row_version + 1
  FROM unnest(CAST(:counts AS bigint[]), CAST(:now AS bigint[]), CAST(:seq AS bigint[]), CAST(:lease_epoch AS bigint[]))
    AS r (counts, now, seq, epoch)
 WHERE j.seq = r.seq AND j.lease_epoch = r.epoch

-- event_insert (tenant_id, project_id, job_id, kind, at, facts) @postgres --
INSERT INTO events (tenant_id, project_id, job_id, kind, at, facts)
SELECT r.tenant_id, r.project_id, r.job_id, r.kind, r.at, r.facts
  FROM unnest(CAST(:tenant_id AS text[]), CAST(:project_id AS text[]), CAST(:job_id AS text[]), CAST(:kind AS text[]),
              CAST(:at AS bigint[]), CAST(:facts AS text[]))
       WITH ORDINALITY AS r (tenant_id, project_id, job_id, kind, at, facts, place)
 ORDER BY r.place

-- effect_intend (tenant_id, project_id, job_id, op_key, kind, effect_class, fingerprint, request, epoch, now) @postgres --
INSERT INTO effects (tenant_id, project_id, job_id, op_key, kind, effect_class, fingerprint, request, state, epoch, started_at)
SELECT r.tenant_id, r.project_id, r.job_id, r.op_key, r.kind, r.effect_class, r.fingerprint, r.request, 'intended', r.epoch, r.now
  FROM unnest(CAST(:tenant_id AS text[]), CAST(:project_id AS text[]), CAST(:job_id AS text[]), CAST(:op_key AS text[]),
              CAST(:kind AS text[]), CAST(:effect_class AS text[]), CAST(:fingerprint AS text[]), CAST(:request AS text[]),
              CAST(:epoch AS bigint[]), CAST(:now AS bigint[]))
    AS r (tenant_id, project_id, job_id, op_key, kind, effect_class, fingerprint, request, epoch, now)
ON CONFLICT (tenant_id, project_id, job_id, op_key) DO UPDATE
   SET state = 'intended', epoch = excluded.epoch, started_at = excluded.started_at, request = excluded.request,
       finished_at = NULL, result = NULL, result_code = NULL

-- blob_insert (tenant_id, project_id, sha256, byte_size, storage_backend, storage_pointer, content_type, now) @postgres --
INSERT INTO blobs (tenant_id, project_id, sha256, byte_size, storage_backend, storage_pointer, content_type, created_at)
SELECT r.* FROM unnest(CAST(:tenant_id AS text[]), CAST(:project_id AS text[]), CAST(:sha256 AS text[]), CAST(:byte_size AS bigint[]),
                       CAST(:storage_backend AS text[]), CAST(:storage_pointer AS text[]), CAST(:content_type AS text[]),
                       CAST(:now AS bigint[]))
    AS r (tenant_id, project_id, sha256, byte_size, storage_backend, storage_pointer, content_type, now)
 ORDER BY r.project_id, r.sha256
ON CONFLICT (tenant_id, project_id, sha256) DO NOTHING

-- artifact_insert (tenant_id, project_id, artifact_id, artifact_type, storage_backend, storage_pointer, content_type, byte_size, sha256, schema_version, name, metadata, now, created_by_job_id, previous_id) @postgres --
INSERT INTO artifacts (tenant_id, project_id, artifact_id, artifact_type, storage_backend, storage_pointer, content_type,
  byte_size, sha256, schema_version, name, metadata, created_at, created_by_job_id, previous_id)
SELECT * FROM unnest(CAST(:tenant_id AS text[]), CAST(:project_id AS text[]), CAST(:artifact_id AS text[]),
  CAST(:artifact_type AS text[]), CAST(:storage_backend AS text[]), CAST(:storage_pointer AS text[]), CAST(:content_type AS text[]),
  CAST(:byte_size AS bigint[]), CAST(:sha256 AS text[]), CAST(:schema_version AS text[]), CAST(:name AS text[]),
  CAST(:metadata AS text[]), CAST(:now AS bigint[]), CAST(:created_by_job_id AS text[]), CAST(:previous_id AS text[]))

-- job_artifact_insert (tenant_id, project_id, job_id, role, ordinal, artifact_id) @postgres --
INSERT INTO job_artifacts (tenant_id, project_id, job_id, role, ordinal, artifact_id)
SELECT * FROM unnest(CAST(:tenant_id AS text[]), CAST(:project_id AS text[]), CAST(:job_id AS text[]), CAST(:role AS text[]),
                     CAST(:ordinal AS bigint[]), CAST(:artifact_id AS text[]))

-- finalize_confirm (now, result, tenant_id, project_id, job_id, op_key, epoch) @postgres --
UPDATE effects AS e SET state = 'confirmed', finished_at = r.now, result_code = 'OK', result = r.result
  FROM unnest(CAST(:now AS bigint[]), CAST(:result AS text[]), CAST(:tenant_id AS text[]), CAST(:project_id AS text[]),
              CAST(:job_id AS text[]), CAST(:op_key AS text[]), CAST(:epoch AS bigint[]))
    AS r (now, result, tenant_id, project_id, job_id, op_key, epoch)
 WHERE e.tenant_id = r.tenant_id AND e.project_id = r.project_id AND e.job_id = r.job_id AND e.op_key = r.op_key
   AND e.epoch = r.epoch AND e.state = 'intended'

-- effect_find (tenant_id, project_id, op_key) @postgres --
SELECT {effect}
  FROM unnest(CAST(:tenant_id AS text[]), CAST(:project_id AS text[]), CAST(:op_key AS text[])) AS r (tenant_id, project_id, op_key)
  JOIN effects AS e ON e.tenant_id = r.tenant_id AND e.project_id = r.project_id AND e.op_key = r.op_key

-- url_version_put (tenant_id, project_id, canonical_url, sha256, byte_size, etag, last_modified, final_url, caller, vary, artifact_id, job_id, now) @postgres --
-- A URL may be longer than an index entry: its hash is the key. No batch names a URL twice.
INSERT INTO url_versions (tenant_id, project_id, canonical_url, sha256, byte_size, etag, last_modified, final_url,
  caller, vary, artifact_id, job_id, seen_at, revalidated_at)
SELECT r.*, r.now
  FROM unnest(CAST(:tenant_id AS text[]), CAST(:project_id AS text[]), CAST(:canonical_url AS text[]), CAST(:sha256 AS text[]),
              CAST(:byte_size AS bigint[]), CAST(:etag AS text[]), CAST(:last_modified AS text[]), CAST(:final_url AS text[]),
              CAST(:caller AS text[]), CAST(:vary AS text[]), CAST(:artifact_id AS text[]), CAST(:job_id AS text[]),
              CAST(:now AS bigint[]))
    AS r (tenant_id, project_id, canonical_url, sha256, byte_size, etag, last_modified, final_url, caller, vary, artifact_id, job_id, now)
 ORDER BY r.project_id, r.canonical_url
ON CONFLICT (tenant_id, project_id, url_hash) DO UPDATE
   SET previous_artifact_id = url_versions.artifact_id, sha256 = excluded.sha256, byte_size = excluded.byte_size,
       etag = excluded.etag, last_modified = excluded.last_modified, final_url = excluded.final_url,
       caller = excluded.caller, vary = excluded.vary, artifact_id = excluded.artifact_id, job_id = excluded.job_id, seen_at = excluded.seen_at,
       revalidated_at = excluded.revalidated_at

-- url_artifacts @postgres --
SELECT v.canonical_url, v.artifact_id
  FROM unnest(ARRAY(SELECT text_hash(value) FROM {each urls})) AS r (hash)
 CROSS JOIN LATERAL (SELECT o.canonical_url, o.artifact_id FROM url_versions AS o
   WHERE o.tenant_id = :tenant_id AND o.project_id = :project_id AND o.url_hash = r.hash LIMIT 1) AS v

-- url_version_revalidated (now, tenant_id, project_id, canonical_url, artifact_id) @postgres --
UPDATE url_versions SET revalidated_at = :now
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND url_hash = text_hash(:canonical_url)
   AND sha256 = (SELECT a.sha256 FROM artifacts AS a
                  WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.artifact_id = :artifact_id)

-- url_versions (tenant_id, project_id, canonical_url) @postgres --
-- The hashes are made first: in a join, row-level security keeps a function that is not leakproof out of
-- the index, and every row of the tenant is hashed against every URL.
SELECT v.canonical_url, v.sha256, v.etag, v.last_modified, v.byte_size, v.seen_at, v.revalidated_at, v.artifact_id, v.job_id,
       v.final_url, v.caller, v.vary
  FROM unnest(CAST(:tenant_id AS text[]), CAST(:project_id AS text[]),
              ARRAY(SELECT text_hash(u.url) FROM unnest(CAST(:canonical_url AS text[])) AS u (url))) AS r (tenant_id, project_id, hash)
  JOIN url_versions AS v ON v.tenant_id = r.tenant_id AND v.project_id = r.project_id AND v.url_hash = r.hash

-- plan_insert (tenant_id, project_id, job_id, job_type, stage, ready, lane_id, priority, now, idempotency_key, work_id, source_ref, url, canonical_url, host, request, max_attempts, run_id, request_id, retry_of, user_id, book_id, media_type, source) @postgres --
INSERT INTO jobs (tenant_id, project_id, job_id, job_type, status, stage, ready, lane_id, priority, created_at, updated_at,
  idempotency_key, work_id, source_ref, url, canonical_url, host, request, max_attempts, run_id, request_id, retry_of,
  user_id, book_id, media_type, source)
SELECT r.tenant_id, r.project_id, r.job_id, r.job_type, 'pending', r.stage, r.ready, r.lane_id, r.priority, r.now, r.now,
  r.idempotency_key, r.work_id, r.source_ref, r.url, r.canonical_url, r.host, r.request, r.max_attempts, r.run_id, r.request_id,
  r.retry_of, r.user_id, r.book_id, r.media_type, r.source
  FROM unnest(CAST(:tenant_id AS text[]), CAST(:project_id AS text[]), CAST(:job_id AS text[]), CAST(:job_type AS text[]),
    CAST(:stage AS text[]), CAST(:ready AS int[]), CAST(:lane_id AS bigint[]), CAST(:priority AS bigint[]), CAST(:now AS bigint[]),
    CAST(:idempotency_key AS text[]), CAST(:work_id AS text[]), CAST(:source_ref AS text[]), CAST(:url AS text[]),
    CAST(:canonical_url AS text[]), CAST(:host AS text[]), CAST(:request AS text[]), CAST(:max_attempts AS bigint[]),
    CAST(:run_id AS text[]), CAST(:request_id AS text[]), CAST(:retry_of AS text[]), CAST(:user_id AS text[]),
    CAST(:book_id AS text[]), CAST(:media_type AS text[]), CAST(:source AS text[]))
    WITH ORDINALITY AS r (tenant_id, project_id, job_id, job_type, stage, ready, lane_id, priority, now, idempotency_key, work_id,
      source_ref, url, canonical_url, host, request, max_attempts, run_id, request_id, retry_of, user_id, book_id, media_type,
      source, place)
 ORDER BY r.place

-- work_due @postgres --
SELECT dispatch_work_due(CAST(:job_types AS jsonb), :tenant_id, :project_id, :now)

-- stops_wanted @postgres --
SELECT dispatch_stops_wanted(:owner)

-- scopes_known @postgres --
SELECT tenant_id, project_id FROM dispatch_scopes()

-- commits_forget @postgres --
-- Connections that ended long ago; no client still asks whether their last transaction was committed.
DELETE FROM commits WHERE at < clock_timestamp() - interval '7 days'
