-- The store's own schema: blobs in pieces, reached by the service only. Safe to run again.

-- name: create
SELECT pg_advisory_xact_lock(hashtext('longshore_store'));  -- IF NOT EXISTS alone fails when two run at once
CREATE SCHEMA IF NOT EXISTS longshore_store;
CREATE TABLE IF NOT EXISTS longshore_store.objects (
    object_key   text COLLATE "C" PRIMARY KEY,
    byte_size    bigint NOT NULL CHECK (byte_size >= 0),
    content_type text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE IF NOT EXISTS longshore_store.pieces (
    object_key text COLLATE "C" NOT NULL
        REFERENCES longshore_store.objects (object_key) ON DELETE CASCADE ON UPDATE CASCADE,
    ordinal    integer NOT NULL CHECK (ordinal >= 0),
    data       bytea NOT NULL,
    PRIMARY KEY (object_key, ordinal)
);
ALTER TABLE longshore_store.pieces ALTER COLUMN data SET STORAGE EXTERNAL;

-- name: secure
-- A tenant's blobs are seen and changed in that tenant's name only; without a name nothing is. Also by the tables' owner.
DO $$
DECLARE
  name text;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('longshore_store'));
  IF EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = 'longshore_store.pieces'::regclass) THEN RETURN; END IF;  -- another was faster
  IF NOT (SELECT pg_has_role(relowner, 'MEMBER') FROM pg_class WHERE oid = 'longshore_store.objects'::regclass) THEN RETURN; END IF;
  CREATE OR REPLACE FUNCTION longshore_store.tenant_of(object_key text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
    SELECT CASE WHEN starts_with(object_key, '.quarantine/') THEN split_part(object_key, '/', 2)
                WHEN starts_with(object_key, '.') THEN ''
                ELSE split_part(object_key, '/', 1) END
  $f$;
  FOREACH name IN ARRAY ARRAY['objects', 'pieces'] LOOP
    EXECUTE format('ALTER TABLE longshore_store.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE longshore_store.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('DROP POLICY IF EXISTS tenant ON longshore_store.%I', name);
    EXECUTE format('CREATE POLICY tenant ON longshore_store.%I USING (current_setting(''longshore.store_tenant'', true)'
                   ' IN (''*'', longshore_store.tenant_of(object_key)))', name);
  END LOOP;
END $$;

-- name: exists
SELECT to_regclass('longshore_store.pieces') IS NOT NULL,
       EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = to_regclass('longshore_store.pieces'));

-- name: enter
SELECT set_config('longshore.store_tenant', %(tenant)s, true);

-- name: add_object
INSERT INTO longshore_store.objects (object_key, byte_size, content_type)
VALUES (%(key)s, %(size)s, %(content_type)s)
ON CONFLICT (object_key) DO NOTHING
RETURNING object_key;

-- name: add_piece
INSERT INTO longshore_store.pieces (object_key, ordinal, data) VALUES (%(key)s, %(ordinal)s, %(data)s);

-- name: size
SELECT byte_size FROM longshore_store.objects WHERE object_key = %(key)s;

-- name: read
SELECT data FROM longshore_store.pieces
WHERE object_key = %(key)s AND ordinal BETWEEN %(first)s AND %(last)s
ORDER BY ordinal;

-- name: list
SELECT object_key, byte_size, (extract(epoch FROM created_at) * 1000000)::bigint
FROM longshore_store.objects
WHERE object_key > %(after)s AND object_key >= %(prefix)s AND object_key < %(beyond)s
ORDER BY object_key
LIMIT %(limit)s;

-- name: move
UPDATE longshore_store.objects SET object_key = %(target)s WHERE object_key = %(key)s RETURNING object_key;

-- name: delete
DELETE FROM longshore_store.objects WHERE object_key = %(key)s RETURNING object_key;
