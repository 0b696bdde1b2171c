-- Since when a host gives nothing but faults: answers that are none, or no answers.
ALTER TABLE hosts ADD COLUMN faulty_since BIGINT;

-- Jobs of all tenants that were asked for at a host, were planned before it was found faulty and wait for another attempt.
CREATE FUNCTION dispatch_host_asked(p_host text, p_before bigint, p_many bigint) RETURNS SETOF jobs
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT j.* FROM jobs j
   WHERE j.next_attempt_at IS NOT NULL AND j.host = p_host AND j.job_type = 'download' AND j.attempts > 0
     AND j.created_at <= p_before AND j.lease_owner IS NULL
   ORDER BY j.next_attempt_at LIMIT p_many FOR NO KEY UPDATE OF j SKIP LOCKED;
END $$;
DO $$
BEGIN
  BEGIN
    GRANT longshore_dispatcher TO CURRENT_USER;
  EXCEPTION WHEN insufficient_privilege THEN
    IF NOT pg_has_role(current_user, 'longshore_dispatcher', 'MEMBER') THEN RAISE; END IF;  -- somebody else gave it to us
  END;
  EXECUTE format('GRANT CREATE ON SCHEMA %I TO longshore_dispatcher', current_schema());
  ALTER FUNCTION dispatch_host_asked(text, bigint, bigint) OWNER TO longshore_dispatcher;
  REVOKE ALL ON FUNCTION dispatch_host_asked(text, bigint, bigint) FROM PUBLIC;
  GRANT EXECUTE ON FUNCTION dispatch_host_asked(text, bigint, bigint) TO longshore_app;
  EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM longshore_dispatcher', current_schema());
  BEGIN
    REVOKE longshore_dispatcher FROM CURRENT_USER;
  EXCEPTION WHEN insufficient_privilege THEN NULL;
  END;
END $$;
