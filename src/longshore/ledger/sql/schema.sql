-- Schema and identity of a ledger, and what `doctor` and `migrate` read of the catalogs.

-- meta_value --
SELECT value FROM _meta WHERE key = :key

-- meta_put --
INSERT INTO _meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- has_meta @sqlite --
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '_meta'

-- has_meta @postgres --
SELECT to_regclass('_meta') IS NOT NULL

-- migration_put @sqlite --
INSERT INTO _migrations (version, name, checksum, applied_at) VALUES (:version, :name, :checksum, :now)

-- migration_put @postgres --
INSERT INTO _migrations (version, name, checksum, applied_at)
VALUES (:version, :name, :checksum, CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint))

-- migration_checksums --
SELECT version, checksum FROM _migrations

-- schema_objects @sqlite --
SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'

-- schema_objects @postgres --
SELECT 'column ' || c.relname || '.' || a.attname,
       format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE c.relnamespace = (:schema::text)::regnamespace AND c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'table ' || relname, relkind::text || ' ' || relrowsecurity || ' ' || relforcerowsecurity || ' ' || coalesce(reloptions::text, '')
  FROM pg_class WHERE relnamespace = (:schema::text)::regnamespace AND relkind IN ('r', 'v')
UNION ALL
SELECT 'rights on ' || c.relname,
       (SELECT string_agg(pg_get_userbyid(x.grantee) || ' ' || x.privilege_type, ', ' ORDER BY pg_get_userbyid(x.grantee), x.privilege_type)
          FROM aclexplode(c.relacl) AS x WHERE x.grantee <> c.relowner)
  FROM pg_class AS c WHERE c.relnamespace = (:schema::text)::regnamespace AND c.relkind IN ('r', 'v')
UNION ALL
SELECT 'rights on function ' || p.proname,
       (SELECT string_agg(pg_get_userbyid(x.grantee) || ' ' || x.privilege_type, ', ' ORDER BY pg_get_userbyid(x.grantee))
          FROM aclexplode(p.proacl) AS x WHERE x.grantee <> p.proowner)
  FROM pg_proc AS p WHERE p.pronamespace = (:schema::text)::regnamespace AND p.prosecdef
UNION ALL
SELECT 'constraint ' || conrelid::regclass::text || '.' || conname, pg_get_constraintdef(oid)
  FROM pg_constraint WHERE connamespace = (:schema::text)::regnamespace AND conrelid <> 0
UNION ALL
SELECT 'index ' || c.relname, pg_get_indexdef(i.indexrelid)
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = (:schema::text)::regnamespace
UNION ALL
SELECT 'trigger ' || t.tgname, pg_get_triggerdef(t.oid) || ' ' || t.tgenabled::text
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
 WHERE c.relnamespace = (:schema::text)::regnamespace AND NOT t.tgisinternal
UNION ALL
SELECT 'function ' || p.proname, pg_get_functiondef(p.oid) || ' ' || pg_get_userbyid(p.proowner)
  FROM pg_proc p WHERE p.pronamespace = (:schema::text)::regnamespace
UNION ALL
SELECT 'policy ' || tablename || '.' || policyname, roles::text || ' ' || cmd || ' ' || coalesce(qual, '') || ' ' || coalesce(with_check, '')
  FROM pg_policies WHERE schemaname = :schema::text
UNION ALL
SELECT 'view ' || viewname, definition FROM pg_views WHERE schemaname = :schema::text

-- snapshot_blobs @sqlite --
-- The blobs that a copy of a ledger names; `backup` and `restore` copy their files.
SELECT tenant_id, project_id, sha256, byte_size, storage_pointer FROM blobs

-- snapshot_revoke @sqlite --
-- In a restored copy: nothing opens by a token that was lost, or revoked after the backup.
UPDATE tokens SET revoked_at = :now WHERE revoked_at IS NULL

-- role_facts @postgres --
SELECT current_user, rolsuper, rolbypassrls, current_setting('server_version'),
       (SELECT bool_or(x.grantee = 0 AND x.privilege_type = 'CONNECT')
          FROM pg_database AS d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) AS x WHERE d.datname = current_database())
  FROM pg_roles WHERE rolname = current_user

-- tables_with_policy @postgres --
SELECT relname, relforcerowsecurity, relforcerowsecurity AND EXISTS (SELECT 1 FROM pg_policy AS p WHERE p.polrelid = c.oid)
  FROM pg_class AS c WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY 1

-- earlier_tables @sqlite --
-- Ledgers of earlier programs, for `backfill`.
SELECT name FROM sqlite_schema WHERE type = 'table'

-- earlier_jobs @sqlite --
SELECT job_id, work_id, artifact_id, canonical_url FROM artifact_jobs ORDER BY created_at, job_id

-- earlier_results @sqlite --
SELECT result_json FROM artifact_ops
 WHERE job_id = :job_id AND op_type IN ('STREAM', 'FINALIZE') AND finished_at IS NOT NULL
 ORDER BY started_at

-- earlier_columns @sqlite --
SELECT name FROM pragma_table_info('downloads') ORDER BY cid

-- earlier_downloads @sqlite --
SELECT * FROM downloads
