-- Statistics for a new, empty ledger: rows of the usual shape, analyzed, and taken away again. Without them the planner
-- thinks that all columns are alike, and reads a tenant's every row to find one. Real statistics replace these.
DO $$
DECLARE
  tenant text;
BEGIN
  INSERT INTO hosts (host, updated_at) SELECT 'h' || n, 0 FROM generate_series(1, 100) AS n;
  FOREACH tenant IN ARRAY ARRAY['sample-1', 'sample-2', 'sample-3', 'sample-4'] LOOP
    PERFORM set_config('longshore.tenant', tenant, true);
    INSERT INTO lanes (tenant_id, project_id, host, job_type, ready, turn, parked_until)
    SELECT tenant, 'default', 'h' || n, 'download', n % 2, n, CASE WHEN n % 3 = 0 THEN n END FROM generate_series(1, 100) AS n;
    INSERT INTO jobs (tenant_id, project_id, job_id, job_type, status, stage, ready, lane_id, lease_owner, lease_until,
      lease_epoch, slot_host, next_attempt_at, created_at, updated_at, completed_at, failed_at, idempotency_key, work_id,
      canonical_url, host, error_code)
    SELECT tenant, 'default', gen_random_uuid()::text, 'download', s.status, s.stage, s.ready,
      (SELECT min(l.lane_id) FROM lanes l WHERE l.tenant_id = tenant) + n % 100,
      CASE s.stage WHEN 'LEASED' THEN 'owner-' || n % 10 END, CASE s.stage WHEN 'LEASED' THEN n END, n % 3 + 1,
      CASE s.stage WHEN 'LEASED' THEN 'h' || n % 100 END, CASE WHEN s.stage = 'PLANNED' AND s.ready = 0 THEN n END, n, n,
      CASE s.status WHEN 'completed' THEN n END, CASE s.status WHEN 'failed' THEN n END,
      CASE WHEN n % 10 > 0 THEN md5(random()::text) END, CASE n % 3 WHEN 0 THEN 'work-' || n END,
      'https://h' || n % 100 || '/' || n, 'h' || n % 100, CASE s.status WHEN 'failed' THEN 'http_' || 400 + n % 20 END
      FROM generate_series(1, 800) AS n
     CROSS JOIN LATERAL (SELECT (ARRAY['pending', 'pending', 'processing', 'completed', 'completed', 'failed', 'canceled'])[n % 7 + 1],
        (ARRAY['PLANNED', 'PLANNED', 'LEASED', 'INDEXED', 'DEDUPED', 'FAILED', 'canceled'])[n % 7 + 1],
        (ARRAY[0, 1, 0, 0, 0, 0, 0])[n % 7 + 1]) AS s (status, stage, ready);
    INSERT INTO job_claims (tenant_id, project_id, job_id, epoch, owner, claimed_at)
    SELECT j.tenant_id, j.project_id, j.job_id, j.lease_epoch, 'owner', 0 FROM jobs j WHERE j.tenant_id = tenant;
    INSERT INTO effects (tenant_id, project_id, job_id, op_key, kind, effect_class, state, epoch, started_at, finished_at, result)
    SELECT j.tenant_id, j.project_id, j.job_id, md5(random()::text), 'FINALIZE', 'verifiable',
      CASE WHEN j.seq % 20 = 0 THEN 'intended' ELSE 'confirmed' END, 1, 0, 0, '{}' FROM jobs j WHERE j.tenant_id = tenant;
    INSERT INTO blobs (tenant_id, project_id, sha256, byte_size, storage_backend, storage_pointer, content_type, created_at)
    SELECT j.tenant_id, j.project_id, md5(j.job_id) || md5('x' || j.job_id), 1, 'local', 'p', 'text/plain', 0
      FROM jobs j WHERE j.tenant_id = tenant AND j.status = 'completed';
    INSERT INTO artifacts (tenant_id, project_id, artifact_id, artifact_type, storage_backend, storage_pointer, content_type,
      byte_size, sha256, created_at, created_by_job_id, availability)
    SELECT j.tenant_id, j.project_id, gen_random_uuid()::text, 'download', 'local', 'p', 'text/plain', 1,
      md5(j.job_id) || md5('x' || j.job_id), 0, j.job_id, CASE WHEN j.seq % 50 = 0 THEN 'missing' ELSE 'available' END
      FROM jobs j WHERE j.tenant_id = tenant AND j.status = 'completed';
    INSERT INTO job_artifacts (tenant_id, project_id, job_id, role, ordinal, artifact_id)
    SELECT a.tenant_id, a.project_id, a.created_by_job_id, 'result', 0, a.artifact_id FROM artifacts a WHERE a.tenant_id = tenant;
    INSERT INTO artifact_metadata (tenant_id, project_id, name, value, artifact_id)
    SELECT a.tenant_id, a.project_id, 'document_id', a.artifact_id, a.artifact_id FROM artifacts a WHERE a.tenant_id = tenant;
    INSERT INTO job_params (tenant_id, project_id, name, value, job_id)
    SELECT j.tenant_id, j.project_id, 'document_id', j.job_id, j.job_id FROM jobs j WHERE j.tenant_id = tenant;
    INSERT INTO job_summaries (tenant_id, project_id, job_id, facts, archived_at)
    SELECT j.tenant_id, j.project_id, j.job_id, '{}', 0 FROM jobs j WHERE j.tenant_id = tenant AND j.status = 'completed';
    INSERT INTO url_versions (tenant_id, project_id, canonical_url, sha256, byte_size, artifact_id, job_id, seen_at, revalidated_at)
    SELECT a.tenant_id, a.project_id, 'https://h/' || a.artifact_id, a.sha256, 1, a.artifact_id, a.created_by_job_id, 0, 0 FROM artifacts a WHERE a.tenant_id = tenant;
    INSERT INTO events (tenant_id, project_id, job_id, kind, at, facts)
    SELECT j.tenant_id, j.project_id, j.job_id, 'completed', 0, '{}' FROM jobs j WHERE j.tenant_id = tenant;
    INSERT INTO tombstones (tenant_id, project_id, job_type, idempotency_key, job_id, status, stage, purged_at)
    SELECT j.tenant_id, j.project_id, 'download', md5(random()::text), j.job_id, 'completed', 'INDEXED', 0 FROM jobs j WHERE j.tenant_id = tenant;
    INSERT INTO torrents (tenant_id, project_id, job_id, infohash_v1, infohash_v2, synced_at)
    SELECT j.tenant_id, j.project_id, j.job_id, md5(random()::text), md5(random()::text), j.seq FROM jobs j WHERE j.tenant_id = tenant AND j.seq % 4 = 0;
    INSERT INTO counters (tenant_id, project_id, status, slot, n)
    SELECT tenant, 'default', s, n, 1 FROM unnest(ARRAY['pending', 'processing', 'completed', 'failed']) AS s, generate_series(1, 32) AS n;
  END LOOP;
END $$;
ANALYZE hosts, lanes, jobs, job_claims, effects, blobs, artifacts, job_artifacts, url_versions, events, tombstones, torrents,
  counters, failure_counts, artifact_metadata, job_params, job_summaries;
TRUNCATE hosts, lanes, jobs, job_claims, effects, blobs, artifacts, job_artifacts, url_versions, events, tombstones, torrents,
  counters, failure_counts, media_assets, artifact_metadata, job_params, job_summaries RESTART IDENTITY;
