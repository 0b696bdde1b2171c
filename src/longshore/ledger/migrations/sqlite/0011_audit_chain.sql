-- The audit log is append-only, and each line has a hash over itself and the line before it (domain/policy/audit_chain.py).
-- `audit_hash` is a function of the program; lines from before are chained here, in their order.
ALTER TABLE audit_log ADD COLUMN number INTEGER;  -- 1, 2, 3 … within one tenant and project
ALTER TABLE audit_log ADD COLUMN hash TEXT;
ALTER TABLE audit_log ADD COLUMN login TEXT;      -- of the database; a file has none
-- The end of each chain, and how far retention has removed its beginning.
CREATE TABLE audit_heads (
  tenant_id      TEXT NOT NULL,
  project_id     TEXT NOT NULL,
  number         INTEGER NOT NULL,
  hash           TEXT NOT NULL,
  forgotten      INTEGER NOT NULL DEFAULT 0,
  forgotten_hash TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (tenant_id, project_id)
) STRICT, WITHOUT ROWID;

UPDATE audit_log SET number = ranked.n
  FROM (SELECT seq, ROW_NUMBER() OVER (PARTITION BY tenant_id, project_id ORDER BY seq) AS n FROM audit_log) AS ranked
 WHERE ranked.seq = audit_log.seq;
CREATE UNIQUE INDEX audit_log_chain ON audit_log (tenant_id, project_id, number);
UPDATE audit_log SET hash = chained.hash
  FROM (
    WITH RECURSIVE chain (seq, tenant_id, project_id, number, hash) AS (
      SELECT seq, tenant_id, project_id, number,
             audit_hash('', number, tenant_id, project_id, at, token_id, action, target, detail, remote, login)
        FROM audit_log WHERE number = 1
      UNION ALL
      SELECT a.seq, a.tenant_id, a.project_id, a.number,
             audit_hash(c.hash, a.number, a.tenant_id, a.project_id, a.at, a.token_id, a.action, a.target, a.detail, a.remote, a.login)
        FROM chain AS c JOIN audit_log AS a ON a.tenant_id = c.tenant_id AND a.project_id = c.project_id AND a.number = c.number + 1)
    SELECT seq, hash FROM chain) AS chained
 WHERE chained.seq = audit_log.seq;
INSERT INTO audit_heads (tenant_id, project_id, number, hash)
SELECT a.tenant_id, a.project_id, a.number, a.hash FROM audit_log AS a
  JOIN (SELECT tenant_id, project_id, max(number) AS n FROM audit_log GROUP BY tenant_id, project_id) AS newest
    ON newest.tenant_id = a.tenant_id AND newest.project_id = a.project_id AND newest.n = a.number;

CREATE TRIGGER audit_log_chained AFTER INSERT ON audit_log WHEN NEW.number IS NOT NULL BEGIN
  INSERT INTO audit_heads (tenant_id, project_id, number, hash) VALUES (NEW.tenant_id, NEW.project_id, NEW.number, NEW.hash)
  ON CONFLICT (tenant_id, project_id) DO UPDATE SET number = excluded.number, hash = excluded.hash
   WHERE excluded.number > audit_heads.number;
END;
CREATE TRIGGER audit_log_unchanged BEFORE UPDATE ON audit_log BEGIN
  SELECT RAISE(ABORT, 'longshore:audit: a line of the audit log is never changed');
END;
CREATE TRIGGER audit_log_kept BEFORE DELETE ON audit_log
WHEN OLD.number IS NULL OR OLD.number > COALESCE((SELECT h.forgotten FROM audit_heads AS h
  WHERE h.tenant_id = OLD.tenant_id AND h.project_id = OLD.project_id), 0) BEGIN
  SELECT RAISE(ABORT, 'longshore:audit: only retention removes lines of the audit log');
END;
CREATE TRIGGER audit_heads_kept BEFORE DELETE ON audit_heads BEGIN
  SELECT RAISE(ABORT, 'longshore:audit: the end of the audit log is never removed');
END;

-- The tenant that a host told to wait (Retry-After), while it is one; NULL: the host rests for all.
ALTER TABLE hosts ADD COLUMN cooldown_tenant TEXT;
