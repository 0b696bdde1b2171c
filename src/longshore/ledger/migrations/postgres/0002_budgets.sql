-- What a tenant may have, over all its projects. NULL = the program's setting, 0 = no limit.
-- Whoever counts against a budget holds its row, so that two machines do not give away the same room.
CREATE TABLE budgets (
  tenant_id  TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (tenant_id <> ''),
  bytes      BIGINT CHECK (bytes >= 0),   -- held, every blob once
  items      BIGINT CHECK (items >= 0),   -- artifacts held and jobs that are not over
  jobs       BIGINT CHECK (jobs >= 0),    -- worked on at the same time, by all workers together
  updated_at BIGINT NOT NULL
);
ALTER TABLE budgets ENABLE ROW LEVEL SECURITY;
ALTER TABLE budgets FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON budgets USING (tenant_id = (SELECT current_tenant())) WITH CHECK (tenant_id = current_tenant());
CREATE POLICY dispatcher ON budgets TO longshore_dispatcher USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON budgets TO longshore_app, longshore_dispatcher;

-- Everybody who has anything, for a copy of the whole ledger.
CREATE FUNCTION dispatch_tenants() RETURNS TABLE (tenant_id text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT l.tenant_id FROM lanes l UNION SELECT b.tenant_id FROM budgets b ORDER BY 1;
END $$;
DO $$
BEGIN
  BEGIN
    GRANT longshore_dispatcher TO CURRENT_USER;
  EXCEPTION WHEN insufficient_privilege THEN
    IF NOT pg_has_role(current_user, 'longshore_dispatcher', 'MEMBER') THEN RAISE; END IF;  -- somebody else gave it to us
  END;
  EXECUTE format('GRANT CREATE ON SCHEMA %I TO longshore_dispatcher', current_schema());
  ALTER FUNCTION dispatch_tenants() OWNER TO longshore_dispatcher;
  REVOKE ALL ON FUNCTION dispatch_tenants() FROM PUBLIC;
  GRANT EXECUTE ON FUNCTION dispatch_tenants() TO longshore_app;
  EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM longshore_dispatcher', current_schema());
  BEGIN
    REVOKE longshore_dispatcher FROM CURRENT_USER;
  EXCEPTION WHEN insufficient_privilege THEN NULL;
  END;
END $$;
