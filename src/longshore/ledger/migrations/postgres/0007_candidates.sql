-- What a job's candidates answered (JSON, domain/transfer/mirrors.py): a job that waits for a mirror's host goes on where it stopped.
ALTER TABLE jobs ADD COLUMN trail TEXT;

-- Since when a host answers nothing at all and how many requests found that; and when its name was found not to exist.
ALTER TABLE hosts ADD COLUMN silent_since BIGINT;
ALTER TABLE hosts ADD COLUMN silences BIGINT NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN nameless_at BIGINT;

-- Jobs of all tenants that wait for a host and were planned before it was given up.
CREATE FUNCTION dispatch_host_waiting(p_host text, p_before bigint, p_many bigint) RETURNS SETOF jobs
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT j.* FROM jobs j
   WHERE j.seq IN (
     (SELECT r.seq FROM lanes l JOIN jobs r ON r.lane_id = l.lane_id AND r.ready = 1
       WHERE l.host = p_host AND l.job_type = 'download' AND r.created_at <= p_before LIMIT p_many)
     UNION ALL
     (SELECT w.seq FROM jobs w WHERE w.next_attempt_at IS NOT NULL AND w.host = p_host AND w.job_type = 'download'
         AND w.created_at <= p_before LIMIT p_many))
     AND j.lease_owner IS NULL
   ORDER BY j.seq LIMIT p_many FOR NO KEY UPDATE OF j SKIP LOCKED;
END $$;

-- Lanes of a host in which nothing is left; whoever adds a job to one holds it by KEY SHARE, and is not waited for.
CREATE FUNCTION dispatch_host_lanes_emptied(p_host text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  WITH free AS MATERIALIZED (SELECT l.lane_id FROM lanes l WHERE l.host = p_host AND l.ready = 1 FOR UPDATE SKIP LOCKED)
  UPDATE lanes l SET ready = 0 FROM free f
   WHERE l.lane_id = f.lane_id AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.lane_id = l.lane_id AND j.ready = 1);
END $$;
DO $$
DECLARE
  name text;
BEGIN
  BEGIN
    GRANT longshore_dispatcher TO CURRENT_USER;
  EXCEPTION WHEN insufficient_privilege THEN
    IF NOT pg_has_role(current_user, 'longshore_dispatcher', 'MEMBER') THEN RAISE; END IF;  -- somebody else gave it to us
  END;
  EXECUTE format('GRANT CREATE ON SCHEMA %I TO longshore_dispatcher', current_schema());
  FOREACH name IN ARRAY ARRAY['dispatch_host_waiting(text, bigint, bigint)', 'dispatch_host_lanes_emptied(text)'] LOOP
    EXECUTE 'ALTER FUNCTION ' || name || ' OWNER TO longshore_dispatcher';
    EXECUTE 'REVOKE ALL ON FUNCTION ' || name || ' FROM PUBLIC';
    EXECUTE 'GRANT EXECUTE ON FUNCTION ' || name || ' TO longshore_app';
  END LOOP;
  EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM longshore_dispatcher', current_schema());
  BEGIN
    REVOKE longshore_dispatcher FROM CURRENT_USER;
  EXCEPTION WHEN insufficient_privilege THEN NULL;
  END;
END $$;
