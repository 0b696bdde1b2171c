-- {effect} --
e.job_id, e.op_key, e.kind, e.effect_class, e.state, e.epoch, e.fingerprint, e.request, e.result, e.started_at, e.finished_at

-- effect_find (tenant_id, project_id, op_key) --
SELECT {effect} FROM effects AS e
 WHERE e.tenant_id = :tenant_id AND e.project_id = :project_id AND e.op_key IN {all op_key}

-- effect_find @sqlite --
-- (INDEXED BY: otherwise a list of keys would walk all effects of the project.)
SELECT {effect} FROM effects AS e INDEXED BY effects_key
 WHERE e.tenant_id = :tenant_id AND e.project_id = :project_id AND e.op_key IN {all op_key}

-- effect_intend (tenant_id, project_id, job_id, op_key, kind, effect_class, fingerprint, request, epoch, now) --
-- The intent, written before the effect runs; an attempt that takes over an unfinished intent writes its own epoch.
INSERT INTO effects (tenant_id, project_id, job_id, op_key, kind, effect_class, fingerprint, request, state, epoch, started_at)
VALUES (:tenant_id, :project_id, :job_id, :op_key, :kind, :effect_class, :fingerprint, :request, 'intended', :epoch, :now)
ON CONFLICT (tenant_id, project_id, job_id, op_key) DO UPDATE
   SET state = 'intended', epoch = excluded.epoch, started_at = excluded.started_at, request = excluded.request,
       finished_at = NULL, result = NULL, result_code = NULL

-- effect_doubt (now, tenant_id, project_id, op_key) --
UPDATE effects SET state = 'in_doubt', finished_at = :now
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND op_key = :op_key AND state = 'intended'

-- effect_confirm (now, result_code, result, tenant_id, project_id, job_id, op_key, epoch) --
UPDATE effects SET state = 'confirmed', finished_at = :now, result_code = :result_code, result = :result
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND op_key = :op_key AND epoch = :epoch
   AND state = 'intended'
RETURNING op_key

-- effect_failed (now, result_code, tenant_id, project_id, job_id, op_key, epoch) --
-- The effect raised: it is not done, and the next attempt runs it.
UPDATE effects SET state = 'failed', finished_at = :now, result_code = :result_code
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND op_key = :op_key AND epoch = :epoch
   AND state = 'intended'

-- effects_unfinished --
SELECT {effect} FROM effects AS e
 WHERE e.tenant_id = :tenant_id AND e.project_id = :project_id AND e.job_id = :job_id AND e.state = 'intended'
 ORDER BY e.started_at

-- effects_stale --
-- Intents of jobs that are over; no worker will finish them.
UPDATE effects INDEXED BY effects_open SET state = 'abandoned', finished_at = :now
 WHERE state = 'intended' AND effect_class <> 'opaque'
   AND EXISTS (SELECT 1 FROM jobs AS j WHERE j.tenant_id = effects.tenant_id AND j.project_id = effects.project_id
                 AND j.job_id = effects.job_id AND j.status <> 'pending' AND j.status <> 'processing')

-- effects_stale_opaque --
UPDATE effects INDEXED BY effects_open SET state = 'in_doubt', finished_at = :now
 WHERE state = 'intended' AND effect_class = 'opaque'
   AND EXISTS (SELECT 1 FROM jobs AS j WHERE j.tenant_id = effects.tenant_id AND j.project_id = effects.project_id
                 AND j.job_id = effects.job_id AND (j.lease_owner IS NULL OR j.lease_epoch <> effects.epoch))
