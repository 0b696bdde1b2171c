-- Rights and the audit log. `longshore_app` is for workers; `longshore_service` (the service and the command line) may also
-- write tokens. A line of the audit log is added by a function, never changed, removed only by retention, and has a hash
-- over itself and the line before it (domain/policy/audit_chain.py computes the same).
DO $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'longshore_service') THEN
    BEGIN
      CREATE ROLE longshore_service NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- another ledger of this server was faster
    END;
  END IF;
  IF NOT pg_has_role('longshore_service', 'longshore_app', 'MEMBER') THEN
    GRANT longshore_app TO longshore_service;
  END IF;
  BEGIN
    GRANT longshore_service TO CURRENT_USER;
  EXCEPTION WHEN insufficient_privilege THEN
    IF NOT pg_has_role(current_user, 'longshore_service', 'MEMBER') THEN RAISE; END IF;  -- somebody else gave it to us
  END;
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO longshore_service', current_schema());
  REVOKE ALL ON tokens, audit_log FROM longshore_app, longshore_dispatcher;
  GRANT SELECT ON audit_log TO longshore_app;
  GRANT SELECT, INSERT, DELETE ON audit_log TO longshore_dispatcher;
  GRANT SELECT, INSERT, UPDATE, DELETE ON tokens TO longshore_service;
END $$;

ALTER TABLE audit_log ADD COLUMN number BIGINT;  -- 1, 2, 3 … within one tenant and project
ALTER TABLE audit_log ADD COLUMN hash TEXT;
ALTER TABLE audit_log ADD COLUMN login TEXT;     -- the login of the database that added the line
-- The end of each chain, and how far retention has removed its beginning.
CREATE TABLE audit_heads (
  tenant_id      TEXT COLLATE "C" NOT NULL,
  project_id     TEXT COLLATE "C" NOT NULL,
  number         BIGINT NOT NULL,
  hash           TEXT NOT NULL,
  forgotten      BIGINT NOT NULL DEFAULT 0,
  forgotten_hash TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (tenant_id, project_id)
);
ALTER TABLE audit_heads ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_heads FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON audit_heads USING (tenant_id = (SELECT current_tenant())) WITH CHECK (tenant_id = current_tenant());
CREATE POLICY dispatcher ON audit_heads TO longshore_dispatcher USING (true) WITH CHECK (true);
GRANT SELECT ON audit_heads TO longshore_app;
GRANT SELECT, INSERT, UPDATE ON audit_heads TO longshore_dispatcher;

CREATE FUNCTION audit_hash(p_previous text, VARIADIC p_fields text[]) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT encode(sha256(convert_to(p_previous || string_agg(coalesce(octet_length(f.field) || ':' || f.field, '-') || ',', ''
                                                           ORDER BY f.place), 'UTF8')), 'hex')
    FROM unnest(p_fields) WITH ORDINALITY AS f (field, place)
$$;

-- Lines from before are chained in their order. The owner sees all tenants only while the policies are not forced on it.
ALTER TABLE audit_log NO FORCE ROW LEVEL SECURITY;
ALTER TABLE audit_heads NO FORCE ROW LEVEL SECURITY;
DO $$
DECLARE
  line audit_log;
  head audit_heads;
BEGIN
  FOR line IN SELECT * FROM audit_log ORDER BY tenant_id, project_id, seq LOOP
    IF head.tenant_id IS DISTINCT FROM line.tenant_id OR head.project_id IS DISTINCT FROM line.project_id THEN
      INSERT INTO audit_heads SELECT head.* WHERE head.number > 0;
      head := ROW(line.tenant_id, line.project_id, 0, '', 0, '')::audit_heads;
    END IF;
    head.number := head.number + 1;
    head.hash := audit_hash(head.hash, head.number::text, line.tenant_id, line.project_id, line.at::text, line.token_id,
                            line.action, line.target, line.detail, line.remote, line.login);
    UPDATE audit_log AS a SET number = head.number, hash = head.hash
     WHERE a.tenant_id = line.tenant_id AND a.project_id = line.project_id AND a.seq = line.seq;
  END LOOP;
  INSERT INTO audit_heads SELECT head.* WHERE head.number > 0;
END $$;
ALTER TABLE audit_log FORCE ROW LEVEL SECURITY;
ALTER TABLE audit_heads FORCE ROW LEVEL SECURITY;
CREATE UNIQUE INDEX audit_log_chain ON audit_log (tenant_id, project_id, number);

-- Also for the owner.
CREATE FUNCTION audit_log_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND TG_TABLE_NAME = 'audit_log' THEN
    IF OLD.number <= (SELECT h.forgotten FROM audit_heads h WHERE h.tenant_id = OLD.tenant_id AND h.project_id = OLD.project_id) THEN
      RETURN OLD;
    END IF;
  END IF;
  RAISE EXCEPTION 'longshore:audit: a line of the audit log is never changed, and only retention removes it'
    USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_log_kept BEFORE UPDATE OR DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_log_kept();
CREATE TRIGGER audit_log_whole BEFORE TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION audit_log_kept();
CREATE TRIGGER audit_heads_kept BEFORE DELETE ON audit_heads FOR EACH ROW EXECUTE FUNCTION audit_log_kept();
CREATE TRIGGER audit_heads_whole BEFORE TRUNCATE ON audit_heads FOR EACH STATEMENT EXECUTE FUNCTION audit_log_kept();

-- Add a line. The row of the chain's end is held until the end of the transaction: add the line last.
CREATE FUNCTION dispatch_audit_append(p_tenant text, p_project text, p_at bigint, p_token text, p_action text, p_target text,
  p_detail text, p_remote text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  head audit_heads;
BEGIN
  IF p_tenant <> current_tenant() THEN
    RAISE EXCEPTION 'longshore:tenant: the line is of another tenant' USING ERRCODE = 'insufficient_privilege';
  END IF;
  INSERT INTO audit_heads (tenant_id, project_id, number, hash) VALUES (p_tenant, p_project, 0, '') ON CONFLICT DO NOTHING;
  SELECT * INTO head FROM audit_heads h WHERE h.tenant_id = p_tenant AND h.project_id = p_project FOR NO KEY UPDATE;
  head.number := head.number + 1;
  head.hash := audit_hash(head.hash, head.number::text, p_tenant, p_project, p_at::text, p_token, p_action, p_target, p_detail,
                          p_remote, session_user::text);
  INSERT INTO audit_log (tenant_id, project_id, at, token_id, action, target, detail, remote, number, hash, login)
  VALUES (p_tenant, p_project, p_at, p_token, p_action, p_target, p_detail, p_remote, head.number, head.hash, session_user);
  UPDATE audit_heads h SET number = head.number, hash = head.hash WHERE h.tenant_id = p_tenant AND h.project_id = p_project;
END $$;

-- Retention: remove the oldest lines from before a moment, some at a time, and keep the hash of the last one of them.
CREATE FUNCTION dispatch_audit_forget(p_tenant text, p_project text, p_before bigint, p_many bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  last bigint;
  gone bigint;
BEGIN
  IF p_tenant <> current_tenant() THEN
    RAISE EXCEPTION 'longshore:tenant: the lines are of another tenant' USING ERRCODE = 'insufficient_privilege';
  END IF;
  PERFORM 1 FROM audit_heads h WHERE h.tenant_id = p_tenant AND h.project_id = p_project FOR NO KEY UPDATE;
  SELECT max(o.number) INTO last FROM (
    SELECT a.number, a.at FROM audit_log a WHERE a.tenant_id = p_tenant AND a.project_id = p_project AND a.number > 0
     ORDER BY a.number LIMIT p_many) AS o WHERE o.at < p_before;
  UPDATE audit_heads h SET forgotten = a.number, forgotten_hash = a.hash FROM audit_log a
   WHERE h.tenant_id = p_tenant AND h.project_id = p_project AND a.tenant_id = p_tenant AND a.project_id = p_project
     AND a.number = last;
  DELETE FROM audit_log a WHERE a.tenant_id = p_tenant AND a.project_id = p_project AND a.number <= last;
  GET DIAGNOSTICS gone = ROW_COUNT;
  RETURN gone;
END $$;

CREATE FUNCTION dispatch_audit_scopes() RETURNS TABLE (tenant_id text, project_id text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT h.tenant_id, h.project_id FROM audit_heads h
         UNION SELECT a.tenant_id, a.project_id FROM audit_log a ORDER BY 1, 2;
END $$;

DO $$
DECLARE
  name text;
  login text;
BEGIN
  BEGIN
    GRANT longshore_dispatcher TO CURRENT_USER;
  EXCEPTION WHEN insufficient_privilege THEN
    IF NOT pg_has_role(current_user, 'longshore_dispatcher', 'MEMBER') THEN RAISE; END IF;  -- somebody else gave it to us
  END;
  EXECUTE format('GRANT CREATE ON SCHEMA %I TO longshore_dispatcher', current_schema());
  FOREACH name IN ARRAY ARRAY['dispatch_audit_append(text, text, bigint, text, text, text, text, text)', 'dispatch_audit_scopes()',
                              'dispatch_audit_forget(text, text, bigint, bigint)'] LOOP
    EXECUTE 'ALTER FUNCTION ' || name || ' OWNER TO longshore_dispatcher';
    EXECUTE 'REVOKE ALL ON FUNCTION ' || name || ' FROM PUBLIC';
    EXECUTE 'GRANT EXECUTE ON FUNCTION ' || name || ' TO '
            || CASE WHEN name LIKE 'dispatch_audit_forget%' THEN 'longshore_service' ELSE 'longshore_app' END;
  END LOOP;
  -- Everybody who has anything, for a copy of the whole ledger: also those who have only lines of the audit log.
  CREATE OR REPLACE FUNCTION dispatch_tenants() RETURNS TABLE (tenant_id text)
  LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $f$
  BEGIN
    RETURN QUERY SELECT l.tenant_id FROM lanes l UNION SELECT b.tenant_id FROM budgets b
           UNION SELECT h.tenant_id FROM audit_heads h ORDER BY 1;
  END $f$;
  -- Who may not work with the ledger may not connect to it: not even to take locks or to notify.
  FOR login IN SELECT m.member::regrole::text FROM pg_auth_members m WHERE m.roleid IN ('longshore_app'::regrole, 'longshore_service'::regrole) LOOP
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO %s', current_database(), login);
  END LOOP;
  EXECUTE format('GRANT CONNECT ON DATABASE %I TO longshore_app, longshore_service', current_database());
  EXECUTE format('REVOKE CONNECT, TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
  EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM longshore_dispatcher', current_schema());
  BEGIN
    REVOKE longshore_dispatcher FROM CURRENT_USER;
  EXCEPTION WHEN insufficient_privilege THEN NULL;
  END;
END $$;

-- The tenant that a host told to wait (Retry-After), while it is one; NULL: the host rests for all.
ALTER TABLE hosts ADD COLUMN cooldown_tenant TEXT;
