-- end_canceled (now, seq, lease_epoch) --
-- Cancel a job on request, now that its lease has ended.
UPDATE jobs
   SET status = 'canceled', stage = 'canceled', lease_owner = NULL, lease_until = NULL, slot_host = NULL, lease_slots = NULL,
       ready = 0, next_attempt_at = NULL, error_code = 'canceled', error_message_safe = 'canceled by request',
       updated_at = :now, row_version = row_version + 1
 WHERE seq IN {all seq} AND lease_epoch = :lease_epoch

-- end_completed (stage, attempts, now, seq, lease_epoch) --
UPDATE jobs
   SET status = 'completed', stage = :stage, lease_owner = NULL, lease_until = NULL, slot_host = NULL, lease_slots = NULL,
       progress = 100, bytes_done = bytes_total, attempts = attempts + :attempts, completed_at = :now, updated_at = :now, error_code = NULL,
       error_message_safe = NULL, error_debug_id = NULL, row_version = row_version + 1
 WHERE seq IN {all seq} AND lease_epoch = :lease_epoch

-- end_skipped (stage, reuse_of_job_id, now, seq, lease_epoch) --
UPDATE jobs
   SET status = 'skipped', stage = :stage, reuse_of_job_id = :reuse_of_job_id, lease_owner = NULL, lease_until = NULL,
       slot_host = NULL, lease_slots = NULL, updated_at = :now, error_code = NULL, error_message_safe = NULL,
       error_debug_id = NULL, row_version = row_version + 1
 WHERE seq = :seq AND lease_epoch = :lease_epoch

-- end_failed (stage, error_code, error_message_safe, error_debug_id, failure_reason, attempts, now, seq, lease_epoch) --
UPDATE jobs
   SET status = 'failed', stage = :stage, ready = 0, next_attempt_at = NULL, lease_owner = NULL, lease_until = NULL,
       slot_host = NULL, lease_slots = NULL, error_code = :error_code, error_message_safe = :error_message_safe,
       error_debug_id = :error_debug_id,
       failure_reason = COALESCE(:failure_reason, failure_reason),
       attempts = attempts + :attempts, failed_at = :now, updated_at = :now, row_version = row_version + 1
 WHERE seq = :seq AND lease_epoch = :lease_epoch

-- end_waiting (ready, status, stage, next_attempt_at, host, lane_id, error_code, error_message_safe, attempts, trail, uncounted, now, seq, lease_epoch) --
-- Back to the start of an attempt, now or later.
UPDATE jobs
   SET lease_owner = NULL, lease_until = NULL, slot_host = NULL, lease_slots = NULL,
       ready = :ready, next_attempt_at = :next_attempt_at, status = :status, stage = :stage,
       error_code = COALESCE(:error_code, error_code), error_message_safe = COALESCE(:error_message_safe, error_message_safe),
       attempts = attempts + :attempts, host = :host, lane_id = :lane_id,
       trail = CASE WHEN CAST(:trail AS TEXT) IS NULL THEN trail ELSE NULLIF(:trail, '') END,
       claims = CASE WHEN claims > :uncounted THEN claims - :uncounted ELSE 0 END, updated_at = :now, row_version = row_version + 1
 WHERE seq = :seq AND lease_epoch = :lease_epoch

-- event_insert (tenant_id, project_id, job_id, kind, at, facts) --
INSERT INTO events (tenant_id, project_id, job_id, kind, at, facts)
VALUES (:tenant_id, :project_id, :job_id, :kind, :at, :facts)

-- blob_insert (tenant_id, project_id, sha256, byte_size, storage_backend, storage_pointer, content_type, now) --
-- New bytes.
INSERT INTO blobs (tenant_id, project_id, sha256, byte_size, storage_backend, storage_pointer, content_type, created_at)
VALUES (:tenant_id, :project_id, :sha256, :byte_size, :storage_backend, :storage_pointer, :content_type, :now)
ON CONFLICT (tenant_id, project_id, sha256) DO NOTHING

-- blobs_known --
-- The hashes among these that are already stored. (RETURNING would build a table per row.)
SELECT sha256 FROM blobs
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND sha256 IN (SELECT value FROM {each sha256s})

-- url_version_put (tenant_id, project_id, canonical_url, sha256, byte_size, etag, last_modified, final_url, caller, vary, artifact_id, job_id, now) --
-- The current version of a URL.
INSERT INTO url_versions (tenant_id, project_id, canonical_url, sha256, byte_size, etag, last_modified, final_url,
  caller, vary, artifact_id, job_id, seen_at, revalidated_at)
VALUES (:tenant_id, :project_id, :canonical_url, :sha256, :byte_size, :etag, :last_modified, :final_url,
  :caller, :vary, :artifact_id, :job_id, :now, :now)
ON CONFLICT (tenant_id, project_id, canonical_url) DO UPDATE
   SET previous_artifact_id = url_versions.artifact_id, sha256 = excluded.sha256, byte_size = excluded.byte_size,
       etag = excluded.etag, last_modified = excluded.last_modified, final_url = excluded.final_url,
       caller = excluded.caller, vary = excluded.vary, artifact_id = excluded.artifact_id, job_id = excluded.job_id, seen_at = excluded.seen_at,
       revalidated_at = excluded.revalidated_at

-- url_artifacts --
-- The previous versions of URLs.
SELECT canonical_url, artifact_id FROM url_versions
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND canonical_url IN (SELECT value FROM {each urls})

-- url_version_revalidated (now, tenant_id, project_id, canonical_url, artifact_id) --
-- Not modified: what the URL gives is still these bytes, whichever of the artifacts that have them was reused.
UPDATE url_versions SET revalidated_at = :now
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND canonical_url = :canonical_url
   AND sha256 = (SELECT a.sha256 FROM artifacts AS a
                  WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.artifact_id = :artifact_id)

-- artifact_insert (tenant_id, project_id, artifact_id, artifact_type, storage_backend, storage_pointer, content_type, byte_size, sha256, schema_version, name, metadata, now, created_by_job_id, previous_id) --
INSERT INTO artifacts (tenant_id, project_id, artifact_id, artifact_type, storage_backend, storage_pointer, content_type,
  byte_size, sha256, schema_version, name, metadata, created_at, created_by_job_id, previous_id)
VALUES (:tenant_id, :project_id, :artifact_id, :artifact_type, :storage_backend, :storage_pointer, :content_type,
  :byte_size, :sha256, :schema_version, :name, :metadata, :now, :created_by_job_id, :previous_id)

-- artifact_label (tenant_id, project_id, name, value, artifact_id) --
-- What the artifact can be looked up by.
INSERT INTO artifact_metadata (tenant_id, project_id, name, value, artifact_id)
VALUES (:tenant_id, :project_id, :name, :value, :artifact_id)

-- job_artifact_insert (tenant_id, project_id, job_id, role, ordinal, artifact_id) --
INSERT INTO job_artifacts (tenant_id, project_id, job_id, role, ordinal, artifact_id)
VALUES (:tenant_id, :project_id, :job_id, :role, :ordinal, :artifact_id)

-- finalize_open --
-- The FINALIZE intents that registering confirms.
SELECT job_id, op_key, epoch FROM effects
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id IN (SELECT value FROM {each job_ids})
   AND kind = 'FINALIZE' AND state = 'intended'

-- finalize_confirm (now, result, tenant_id, project_id, job_id, op_key, epoch) at once --
UPDATE effects SET state = 'confirmed', finished_at = :now, result_code = 'OK', result = :result
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND op_key = :op_key AND epoch = :epoch
   AND state = 'intended'

-- reuse_found --
-- The job and the artifact that a skipped job points to.
SELECT 1 FROM job_artifacts
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND role = 'result'
   AND artifact_id = :artifact_id

-- reuse_results --
SELECT artifact_id FROM job_artifacts
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND role = 'result'
 ORDER BY ordinal

-- host_fault (host, failures, reason, stale, now) --
-- Count a host's consecutive faults (circuit breaker). The count restarts if the last one is older than `stale`.
INSERT INTO hosts (host, failures, failed_at, reason, faulty_since, updated_at)
VALUES (:host, :failures, :now, :reason, :now, :now)
ON CONFLICT (host) DO UPDATE
   SET faulty_since = CASE WHEN hosts.faulty_since IS NULL OR hosts.failed_at < :stale THEN excluded.faulty_since
                           ELSE hosts.faulty_since END,
       failures = hosts.failures + excluded.failures, failed_at = excluded.failed_at, reason = excluded.reason,
       updated_at = excluded.updated_at

-- host_well (now, host) --
UPDATE hosts SET failures = 0, faulty_since = NULL, silent_since = NULL, silences = 0, nameless_at = NULL, updated_at = :now
 WHERE host = :host AND (failures > 0 OR silent_since IS NOT NULL OR nameless_at IS NOT NULL)

-- host_heard (now, host) --
-- The host answered, even if with an error: end its silence.
UPDATE hosts SET silent_since = NULL, silences = 0, nameless_at = NULL, updated_at = :now
 WHERE host = :host AND (silent_since IS NOT NULL OR nameless_at IS NOT NULL)

-- host_silent (host, silent_since, silences, stale, nameless_at, now) --
-- The host did not answer. The silence restarts if it was last observed before `stale`.
INSERT INTO hosts (host, silent_since, silences, nameless_at, updated_at)
VALUES (:host, :silent_since, :silences, :nameless_at, :now)
ON CONFLICT (host) DO UPDATE
   SET silences = CASE WHEN hosts.silent_since IS NULL OR hosts.failed_at < :stale THEN 0 ELSE hosts.silences END
                  + excluded.silences,
       silent_since = CASE WHEN hosts.silent_since IS NULL OR hosts.failed_at < :stale THEN excluded.silent_since
                           ELSE hosts.silent_since END,
       nameless_at = COALESCE(excluded.nameless_at, hosts.nameless_at), updated_at = excluded.updated_at

-- host_rest (host, cooldown_until, cooldown_tenant, bound, reason, now) --
-- Retry-After: the host rests for the tenant that got it; for all, and not beyond a bound, when another tenant gets one meanwhile.
INSERT INTO hosts (host, cooldown_until, cooldown_tenant, reason, updated_at)
VALUES (:host, :cooldown_until, :cooldown_tenant, :reason, :now)
ON CONFLICT (host) DO UPDATE
   SET cooldown_until = CASE
         WHEN COALESCE(hosts.cooldown_until, 0) <= :now THEN excluded.cooldown_until
         WHEN hosts.cooldown_tenant = :cooldown_tenant THEN
           CASE WHEN hosts.cooldown_until > excluded.cooldown_until THEN hosts.cooldown_until ELSE excluded.cooldown_until END
         WHEN hosts.cooldown_tenant IS NULL AND hosts.cooldown_until > :bound THEN hosts.cooldown_until
         WHEN hosts.cooldown_until > :bound OR excluded.cooldown_until > :bound THEN :bound
         WHEN hosts.cooldown_until > excluded.cooldown_until THEN hosts.cooldown_until
         ELSE excluded.cooldown_until END,
       cooldown_tenant = CASE WHEN COALESCE(hosts.cooldown_until, 0) <= :now OR hosts.cooldown_tenant = :cooldown_tenant
                              THEN excluded.cooldown_tenant END,
       reason = excluded.reason, updated_at = excluded.updated_at
