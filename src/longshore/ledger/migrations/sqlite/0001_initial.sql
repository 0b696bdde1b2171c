-- The ledger, first edition, for SQLite. Times are integer microseconds UTC. JSON is TEXT.
-- Every index and trigger costs a write per row: each says why it is here.

CREATE TABLE _meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Which migration was applied when, with the checksum of its text: an edited migration is drift.
CREATE TABLE _migrations (
  version    INTEGER PRIMARY KEY,
  name       TEXT NOT NULL,
  checksum   TEXT NOT NULL,
  applied_at INTEGER NOT NULL
) STRICT;

-- The legal moves of domain/kinds.py as data; a test compares. The trigger jobs_moves reads it.
CREATE TABLE stage_moves (
  machine    TEXT NOT NULL,   -- download | torrent | own
  from_stage TEXT NOT NULL,
  to_stage   TEXT NOT NULL,
  PRIMARY KEY (machine, from_stage, to_stage)
) STRICT, WITHOUT ROWID;
INSERT INTO stage_moves (machine, from_stage, to_stage) VALUES
  ('download','PLANNED','LEASED'), ('download','PLANNED','SKIPPED_DUPLICATE'), ('download','PLANNED','FAILED'), ('download','PLANNED','canceled'),
  ('download','LEASED','HEAD_DONE'), ('download','LEASED','RESUME_OK'), ('download','LEASED','STREAMING'), ('download','LEASED','FINALIZED'),
  ('download','LEASED','SKIPPED_DUPLICATE'), ('download','LEASED','FAILED'), ('download','LEASED','canceled'),
  ('download','HEAD_DONE','RESUME_OK'), ('download','HEAD_DONE','STREAMING'), ('download','HEAD_DONE','SKIPPED_DUPLICATE'),
  ('download','HEAD_DONE','FAILED'), ('download','HEAD_DONE','canceled'),
  ('download','RESUME_OK','STREAMING'), ('download','RESUME_OK','FAILED'), ('download','RESUME_OK','canceled'),
  ('download','STREAMING','FINALIZED'), ('download','STREAMING','FAILED'), ('download','STREAMING','canceled'),
  ('download','FINALIZED','INDEXED'), ('download','FINALIZED','DEDUPED'), ('download','FINALIZED','FAILED'), ('download','FINALIZED','canceled'),
  ('torrent','queued','downloading'), ('torrent','queued','failed'), ('torrent','queued','canceled'),
  ('torrent','downloading','completed'), ('torrent','downloading','failed'), ('torrent','downloading','canceled'),
  ('own','pending','processing'), ('own','pending','skipped'), ('own','pending','failed'), ('own','pending','canceled'),
  ('own','processing','completed'), ('own','processing','skipped'), ('own','processing','failed'), ('own','processing','canceled');

-- Politeness, shared by all workers and all tenants. NULL = the program's default.
CREATE TABLE hosts (
  host           TEXT PRIMARY KEY,
  concurrency    INTEGER CHECK (concurrency >= 0),
  rate_per_s     REAL CHECK (rate_per_s >= 0),
  paused         INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
  cooldown_until INTEGER,                      -- Retry-After: the whole host rests
  failures       INTEGER NOT NULL DEFAULT 0,   -- consecutive faults of the host: the breaker
  failed_at      INTEGER,                      -- the last of them
  next_start_at  INTEGER,                      -- rate: the earliest next start
  reason         TEXT,                         -- of the last fault
  updated_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A lane is what is ready for one host, type and scope: claim walks lanes, never the table of jobs.
-- ready may be 1 for an empty lane (the claim that finds it so clears it), never 0 for a lane with ready jobs.
CREATE TABLE lanes (
  lane_id      INTEGER PRIMARY KEY,
  tenant_id    TEXT NOT NULL,
  project_id   TEXT NOT NULL,
  host         TEXT NOT NULL,
  job_type     TEXT NOT NULL,
  ready        INTEGER NOT NULL DEFAULT 0 CHECK (ready IN (0, 1)),
  top          INTEGER NOT NULL DEFAULT 0,   -- no ready job has a higher priority than this
  turn         INTEGER NOT NULL DEFAULT 0,   -- when it was last served: the longest unserved comes first
  parked_until INTEGER,                      -- its host is full or rests until then
  UNIQUE (tenant_id, project_id, host, job_type)
) STRICT;
-- The walk: the open lanes of a tenant in the order in which they are served.
CREATE INDEX lanes_open ON lanes (tenant_id, top DESC, turn, job_type, project_id) WHERE ready = 1 AND parked_until IS NULL;
-- Opening lanes whose rest is over, and those of a host that got a free slot.
CREATE INDEX lanes_parked ON lanes (parked_until) WHERE parked_until IS NOT NULL;
CREATE INDEX lanes_parked_host ON lanes (host) WHERE parked_until IS NOT NULL;

CREATE TABLE jobs (
  seq            INTEGER PRIMARY KEY,          -- order of planning
  tenant_id      TEXT NOT NULL CHECK (tenant_id <> ''),
  project_id     TEXT NOT NULL CHECK (project_id <> ''),
  job_id         TEXT NOT NULL,
  job_type       TEXT NOT NULL CHECK (job_type <> ''),
  status         TEXT NOT NULL,
  stage          TEXT NOT NULL,
  ready          INTEGER NOT NULL DEFAULT 0 CHECK (ready IN (0, 1)),   -- claimable now
  lane_id        INTEGER NOT NULL REFERENCES lanes (lane_id),
  priority       INTEGER NOT NULL DEFAULT 0,
  lease_owner    TEXT,
  lease_until    INTEGER,
  lease_epoch    INTEGER NOT NULL DEFAULT 0 CHECK (lease_epoch >= 0),
  slot_host      TEXT,                         -- the host whose slot this lease uses now
  lease_slots    INTEGER,                      -- how many slots its owner has at that host
  row_version    INTEGER NOT NULL DEFAULT 1,
  attempts       INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  claims         INTEGER NOT NULL DEFAULT 0 CHECK (claims >= 0),
  next_attempt_at     INTEGER,
  cancel_requested_at INTEGER,
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  completed_at   INTEGER,
  failed_at      INTEGER,
  idempotency_key TEXT,
  superseded     INTEGER NOT NULL DEFAULT 0 CHECK (superseded IN (0, 1)),  -- a linked retry took the key over
  work_id        TEXT,                         -- NULL: the same as canonical_url
  source_ref     TEXT,                         -- the seeds' artifact_id; NULL: the same as canonical_url
  url            TEXT,                         -- as given; NULL: the same as canonical_url
  canonical_url  TEXT,
  host           TEXT NOT NULL DEFAULT '',     -- what politeness counts it under; learned from redirects
  request        TEXT,                         -- JSON: mirrors, expect, headers, name, params
  progress       INTEGER CHECK (progress BETWEEN 0 AND 100),
  bytes_done     INTEGER,
  bytes_total    INTEGER,
  error_code     TEXT,                         -- the last attempt's own reason
  error_message_safe TEXT,
  error_debug_id TEXT,
  max_attempts   INTEGER,
  run_id         TEXT,
  request_id     TEXT,
  reuse_of_job_id TEXT,
  retry_of       TEXT,
  user_id        TEXT,
  book_id        TEXT,
  media_type     TEXT,
  source         TEXT,
  external_job_id TEXT,
  first_not_found_at INTEGER,
  failure_reason TEXT,
  UNIQUE (tenant_id, project_id, job_id),      -- target of every foreign key; uuid7, so it appends and lists in order
  FOREIGN KEY (tenant_id, project_id, retry_of) REFERENCES jobs (tenant_id, project_id, job_id),
  FOREIGN KEY (tenant_id, project_id, reuse_of_job_id) REFERENCES jobs (tenant_id, project_id, job_id),
  -- A stage has one status, and belongs to the type's own machine. (CASE, not IN: a list would be built per row.)
  CONSTRAINT jobs_stage_status CHECK (status = CASE job_type
    WHEN 'download' THEN CASE stage
      WHEN 'PLANNED' THEN 'pending' WHEN 'LEASED' THEN 'processing' WHEN 'HEAD_DONE' THEN 'processing'
      WHEN 'RESUME_OK' THEN 'processing' WHEN 'STREAMING' THEN 'processing' WHEN 'FINALIZED' THEN 'processing'
      WHEN 'INDEXED' THEN 'completed' WHEN 'DEDUPED' THEN 'completed' WHEN 'SKIPPED_DUPLICATE' THEN 'skipped'
      WHEN 'FAILED' THEN 'failed' WHEN 'canceled' THEN 'canceled' ELSE '' END
    WHEN 'torrent' THEN CASE stage
      WHEN 'queued' THEN 'pending' WHEN 'downloading' THEN 'processing' WHEN 'completed' THEN 'completed'
      WHEN 'failed' THEN 'failed' WHEN 'canceled' THEN 'canceled' ELSE '' END
    ELSE CASE stage
      WHEN 'pending' THEN 'pending' WHEN 'processing' THEN 'processing' WHEN 'completed' THEN 'completed'
      WHEN 'skipped' THEN 'skipped' WHEN 'failed' THEN 'failed' WHEN 'canceled' THEN 'canceled' ELSE '' END
    END),
  -- A lease has an owner and an end, and only work in progress has one; types without a lease-free life always do.
  CONSTRAINT jobs_lease_whole CHECK ((lease_owner IS NULL) = (lease_until IS NULL)),
  CONSTRAINT jobs_lease_processing CHECK (lease_owner IS NULL OR (status = 'processing' AND lease_epoch > 0)),
  CONSTRAINT jobs_processing_leased CHECK (status <> 'processing' OR lease_owner IS NOT NULL OR job_type = 'torrent'),
  CONSTRAINT jobs_slot_leased CHECK (slot_host IS NULL OR lease_owner IS NOT NULL),
  -- Ready, waiting and leased exclude each other; what is over is none of them.
  CONSTRAINT jobs_ready_free CHECK (ready = 0 OR (lease_owner IS NULL AND next_attempt_at IS NULL
    AND (status = 'pending' OR status = 'processing'))),
  CONSTRAINT jobs_waiting_free CHECK (next_attempt_at IS NULL OR (lease_owner IS NULL
    AND (status = 'pending' OR status = 'processing'))),
  -- What is over says when and why.
  CONSTRAINT jobs_completed_when CHECK ((status = 'completed') = (completed_at IS NOT NULL)),
  CONSTRAINT jobs_failed_why CHECK ((status = 'failed') = (failed_at IS NOT NULL) AND (status <> 'failed' OR error_code IS NOT NULL)),
  CONSTRAINT jobs_skipped_reuse CHECK (status <> 'skipped' OR reuse_of_job_id IS NOT NULL)
) STRICT;
-- One current job per key: planning the same thing twice cannot make two.
CREATE UNIQUE INDEX jobs_key ON jobs (tenant_id, project_id, job_type, idempotency_key)
  WHERE idempotency_key IS NOT NULL AND superseded = 0;
-- The claim: the ready rows of a lane in the order in which they are taken; history is not in it.
CREATE INDEX jobs_ready ON jobs (lane_id, priority DESC, seq) WHERE ready = 1;
-- Waiting rows, apart, by when they are due.
CREATE INDEX jobs_waiting ON jobs (next_attempt_at) WHERE next_attempt_at IS NOT NULL;
-- Leases by when they expire: the sweep.
CREATE INDEX jobs_expiry ON jobs (lease_until) WHERE lease_until IS NOT NULL;
-- What is in flight at a host, derived from leases; covers the count.
CREATE INDEX jobs_slots ON jobs (slot_host, lease_owner, lease_slots, lease_until) WHERE slot_host IS NOT NULL;
-- Lists by status, in order of planning.
CREATE INDEX jobs_list ON jobs (tenant_id, project_id, status);
-- Failures by reason and host, newest last; only what failed and was not tried again is in it.
CREATE INDEX jobs_failed ON jobs (tenant_id, project_id, error_code, host) WHERE status = 'failed' AND superseded = 0;
-- Jobs of a work; only those whose work is more than their URL pay for it.
CREATE INDEX jobs_work ON jobs (tenant_id, project_id, work_id) WHERE work_id IS NOT NULL;
-- Links between jobs: a purge asks who points here.
CREATE INDEX jobs_retry_of ON jobs (tenant_id, project_id, retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX jobs_reuse_of ON jobs (tenant_id, project_id, reuse_of_job_id) WHERE reuse_of_job_id IS NOT NULL;
-- Seed 002: one active download per user, book and medium.
CREATE UNIQUE INDEX jobs_one_torrent ON jobs (tenant_id, user_id, book_id, media_type)
  WHERE job_type = 'torrent' AND (status = 'pending' OR status = 'processing');

-- Terminal is final; epochs only grow, by one, and only where no lease is held; a stage only moves along stage_moves,
-- back to the start when the lease ends, or to the start of an attempt when one is granted; the result comes first.
CREATE TRIGGER jobs_moves AFTER UPDATE OF status, stage, lease_epoch, lease_owner ON jobs
WHEN OLD.stage <> NEW.stage OR OLD.lease_epoch <> NEW.lease_epoch OR OLD.lease_owner IS NOT NEW.lease_owner
BEGIN
  SELECT CASE
    WHEN OLD.status = 'completed' OR OLD.status = 'failed' OR OLD.status = 'skipped' OR OLD.status = 'canceled'
      THEN RAISE(ABORT, 'longshore:terminal: nothing leaves a terminal stage')
    WHEN NEW.lease_epoch < OLD.lease_epoch OR NEW.lease_epoch > OLD.lease_epoch + 1
      THEN RAISE(ABORT, 'longshore:epoch: a lease epoch grows by one')
    WHEN NEW.lease_epoch > OLD.lease_epoch AND (OLD.lease_owner IS NOT NULL OR NEW.lease_owner IS NULL)
      THEN RAISE(ABORT, 'longshore:lease: a lease is granted where none is held')
    WHEN NEW.lease_epoch = OLD.lease_epoch AND NEW.lease_owner IS NOT NULL AND OLD.lease_owner IS NOT NEW.lease_owner
      THEN RAISE(ABORT, 'longshore:lease: a new owner needs a new epoch')
    WHEN NEW.stage <> OLD.stage
      AND NOT (OLD.lease_owner IS NOT NULL AND NEW.lease_owner IS NULL AND NEW.lease_epoch = OLD.lease_epoch
        AND ((NEW.job_type = 'download' AND NEW.stage = 'PLANNED')
          OR (NEW.job_type <> 'download' AND NEW.job_type <> 'torrent' AND NEW.stage = 'pending')))
      AND NOT EXISTS (SELECT 1 FROM stage_moves m
        WHERE m.machine = CASE NEW.job_type WHEN 'download' THEN 'download' WHEN 'torrent' THEN 'torrent' ELSE 'own' END
          AND m.from_stage = OLD.stage AND m.to_stage = NEW.stage)
      THEN RAISE(ABORT, 'longshore:invalid_transition: no such move')
    WHEN NEW.status = 'completed' AND (NEW.job_type = 'download' OR NEW.job_type = 'torrent' OR NEW.job_type = 'upload')
      AND NOT EXISTS (SELECT 1 FROM job_artifacts a WHERE a.tenant_id = NEW.tenant_id AND a.project_id = NEW.project_id
        AND a.job_id = NEW.job_id AND a.role = 'result')
      THEN RAISE(ABORT, 'longshore:result: a completed job has a result')
  END;
END;
-- Who a job is does not change.
CREATE TRIGGER jobs_identity BEFORE UPDATE OF tenant_id, project_id, job_id, job_type, idempotency_key, created_at ON jobs
BEGIN SELECT RAISE(ABORT, 'longshore:immutable: the identity of a job does not change'); END;

-- One row per grant: who, when, how it ended.
CREATE TABLE job_claims (
  tenant_id  TEXT NOT NULL,
  project_id TEXT NOT NULL,
  job_id     TEXT NOT NULL,
  epoch      INTEGER NOT NULL,
  owner      TEXT NOT NULL,
  host       TEXT NOT NULL DEFAULT '',
  claimed_at INTEGER NOT NULL,
  ended_at   INTEGER,
  outcome    TEXT,      -- completed skipped failed deferred released canceled expired dead
  reason     TEXT,
  PRIMARY KEY (tenant_id, project_id, job_id, epoch),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id) ON DELETE CASCADE,
  CHECK ((ended_at IS NULL) = (outcome IS NULL))
) STRICT, WITHOUT ROWID;

-- One row per side effect: intent before, outcome after.
CREATE TABLE effects (
  tenant_id    TEXT NOT NULL,
  project_id   TEXT NOT NULL,
  job_id       TEXT NOT NULL,
  op_key       TEXT NOT NULL,
  kind         TEXT NOT NULL,
  effect_class TEXT NOT NULL CHECK (CASE effect_class  -- (CASE, not IN: a list would be built per row)
    WHEN 'transactional' THEN 1 WHEN 'keyed' THEN 1 WHEN 'verifiable' THEN 1 WHEN 'opaque' THEN 1 ELSE 0 END),
  fingerprint  TEXT,
  request      TEXT,
  state        TEXT NOT NULL CHECK (CASE state WHEN 'intended' THEN 1 WHEN 'confirmed' THEN 1 WHEN 'failed' THEN 1
    WHEN 'in_doubt' THEN 1 WHEN 'abandoned' THEN 1 ELSE 0 END),
  epoch        INTEGER NOT NULL,
  started_at   INTEGER NOT NULL,
  finished_at  INTEGER,
  result_code  TEXT,
  result       TEXT,
  PRIMARY KEY (tenant_id, project_id, job_id, op_key),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id) ON DELETE CASCADE,
  CHECK (state <> 'confirmed' OR (finished_at IS NOT NULL AND result IS NOT NULL))
) STRICT, WITHOUT ROWID;
-- A key names one effect, whichever job asks.
CREATE UNIQUE INDEX effects_key ON effects (tenant_id, project_id, op_key);
-- A confirmed effect is a fact.
CREATE TRIGGER effects_confirmed AFTER UPDATE ON effects WHEN OLD.state = 'confirmed'
BEGIN SELECT RAISE(ABORT, 'longshore:immutable: a confirmed effect does not change'); END;

-- The hash index: published bytes of a project.
CREATE TABLE blobs (
  tenant_id       TEXT NOT NULL,
  project_id      TEXT NOT NULL,
  sha256          TEXT NOT NULL CHECK (length(sha256) = 64),
  byte_size       INTEGER NOT NULL CHECK (byte_size >= 0),
  storage_backend TEXT NOT NULL,
  storage_pointer TEXT NOT NULL,
  content_type    TEXT NOT NULL,
  created_at      INTEGER NOT NULL,
  verified_at     INTEGER,
  PRIMARY KEY (tenant_id, project_id, sha256)
) STRICT, WITHOUT ROWID;

-- The registry. artifact_id is time-ordered, so the table itself lists newest first.
CREATE TABLE artifacts (
  tenant_id         TEXT NOT NULL,
  project_id        TEXT NOT NULL,
  artifact_id       TEXT NOT NULL,
  artifact_type     TEXT NOT NULL CHECK (artifact_type <> ''),
  storage_backend   TEXT NOT NULL,
  storage_pointer   TEXT NOT NULL,
  content_type      TEXT NOT NULL,
  byte_size         INTEGER NOT NULL CHECK (byte_size >= 0),
  sha256            TEXT NOT NULL,
  schema_version    TEXT,
  name              TEXT,
  metadata          TEXT,
  created_at        INTEGER NOT NULL,
  created_by_job_id TEXT NOT NULL,
  previous_id       TEXT,
  availability      TEXT NOT NULL DEFAULT 'available' CHECK (availability IN ('available', 'missing')),
  PRIMARY KEY (tenant_id, project_id, artifact_id),
  FOREIGN KEY (tenant_id, project_id, created_by_job_id) REFERENCES jobs (tenant_id, project_id, job_id),
  FOREIGN KEY (tenant_id, project_id, sha256) REFERENCES blobs (tenant_id, project_id, sha256)
) STRICT, WITHOUT ROWID;
-- Artifacts of a hash: dedupe, verify, gc.
CREATE INDEX artifacts_sha256 ON artifacts (tenant_id, project_id, sha256);
-- Who points to a job: its foreign key, when jobs are purged. Job ids are time-ordered, so it appends.
CREATE INDEX artifacts_job ON artifacts (tenant_id, project_id, created_by_job_id);
-- What is lost, for verify and the overview.
CREATE INDEX artifacts_missing ON artifacts (tenant_id, project_id) WHERE availability = 'missing';
CREATE TRIGGER artifacts_immutable BEFORE UPDATE OF tenant_id, project_id, artifact_id, artifact_type, storage_backend,
  storage_pointer, content_type, byte_size, sha256, schema_version, name, metadata, created_at, created_by_job_id, previous_id
  ON artifacts
BEGIN SELECT RAISE(ABORT, 'longshore:immutable: an artifact does not change'); END;

CREATE TABLE job_artifacts (
  tenant_id   TEXT NOT NULL,
  project_id  TEXT NOT NULL,
  job_id      TEXT NOT NULL,
  role        TEXT NOT NULL CHECK (role IN ('input', 'result')),
  ordinal     INTEGER NOT NULL CHECK (ordinal >= 0),
  artifact_id TEXT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, job_id, role, ordinal),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id),
  FOREIGN KEY (tenant_id, project_id, artifact_id) REFERENCES artifacts (tenant_id, project_id, artifact_id)
) STRICT, WITHOUT ROWID;
-- Which jobs an artifact came from or went into.
CREATE INDEX job_artifacts_artifact ON job_artifacts (tenant_id, project_id, artifact_id);

-- What a URL last gave.
CREATE TABLE url_versions (
  tenant_id      TEXT NOT NULL,
  project_id     TEXT NOT NULL,
  canonical_url  TEXT NOT NULL,
  sha256         TEXT NOT NULL,
  byte_size      INTEGER NOT NULL,
  etag           TEXT,
  last_modified  TEXT,
  final_url      TEXT,
  artifact_id    TEXT NOT NULL,
  job_id         TEXT NOT NULL,
  previous_artifact_id TEXT,      -- the version before this one
  seen_at        INTEGER NOT NULL,
  revalidated_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, project_id, canonical_url),
  FOREIGN KEY (tenant_id, project_id, sha256) REFERENCES blobs (tenant_id, project_id, sha256)
) STRICT, WITHOUT ROWID;

-- Append-only history. A job's row is its creation event, a row of job_claims its start; everything else stands here.
CREATE TABLE events (
  seq        INTEGER PRIMARY KEY,
  tenant_id  TEXT NOT NULL,
  project_id TEXT NOT NULL,
  job_id     TEXT,
  kind       TEXT NOT NULL,
  at         INTEGER NOT NULL,
  facts      TEXT
) STRICT;
-- What happened in a project after a number: live updates. Appends.
CREATE INDEX events_scope ON events (tenant_id, project_id);
-- The timeline of one job.
CREATE INDEX events_job ON events (tenant_id, project_id, job_id);
CREATE TRIGGER events_append_only BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'longshore:immutable: history does not change'); END;

-- How many jobs have which status: never count(*). Slots spread writers on PostgreSQL; SQLite uses slot 0.
CREATE TABLE counters (
  tenant_id  TEXT NOT NULL,
  project_id TEXT NOT NULL,
  status     TEXT NOT NULL,
  slot       INTEGER NOT NULL DEFAULT 0,
  n          INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, project_id, status, slot)
) STRICT, WITHOUT ROWID;

-- How many failed jobs that nobody tried again there are of which reason at which host: kept by triggers, never counted.
CREATE TABLE failure_counts (
  tenant_id  TEXT NOT NULL,
  project_id TEXT NOT NULL,
  error_code TEXT NOT NULL,
  host       TEXT NOT NULL,
  slot       INTEGER NOT NULL DEFAULT 0,
  n          INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, project_id, error_code, host, slot)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER failures_more AFTER UPDATE OF status ON jobs
WHEN NEW.status = 'failed' AND OLD.status <> 'failed' AND NEW.superseded = 0
BEGIN
  INSERT INTO failure_counts (tenant_id, project_id, error_code, host, n)
  VALUES (NEW.tenant_id, NEW.project_id, NEW.error_code, NEW.host, 1)
  ON CONFLICT (tenant_id, project_id, error_code, host, slot) DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER failures_born AFTER INSERT ON jobs WHEN NEW.status = 'failed' AND NEW.superseded = 0
BEGIN
  INSERT INTO failure_counts (tenant_id, project_id, error_code, host, n)
  VALUES (NEW.tenant_id, NEW.project_id, NEW.error_code, NEW.host, 1)
  ON CONFLICT (tenant_id, project_id, error_code, host, slot) DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER failures_tried_again AFTER UPDATE OF superseded ON jobs
WHEN NEW.status = 'failed' AND OLD.superseded = 0 AND NEW.superseded = 1
BEGIN
  UPDATE failure_counts SET n = n - 1 WHERE tenant_id = OLD.tenant_id AND project_id = OLD.project_id
    AND error_code = OLD.error_code AND host = OLD.host AND slot = 0;
END;
CREATE TRIGGER failures_forgotten AFTER DELETE ON jobs WHEN OLD.status = 'failed' AND OLD.superseded = 0
BEGIN
  UPDATE failure_counts SET n = n - 1 WHERE tenant_id = OLD.tenant_id AND project_id = OLD.project_id
    AND error_code = OLD.error_code AND host = OLD.host AND slot = 0;
END;

-- What a purge leaves of a job: its key still answers.
CREATE TABLE tombstones (
  tenant_id       TEXT NOT NULL,
  project_id      TEXT NOT NULL,
  job_type        TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  job_id          TEXT NOT NULL,
  status          TEXT NOT NULL,
  stage           TEXT NOT NULL,
  artifact_id     TEXT,
  purged_at       INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, project_id, job_type, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE books (
  tenant_id  TEXT NOT NULL,
  project_id TEXT NOT NULL,
  book_id    TEXT NOT NULL,
  state      TEXT NOT NULL DEFAULT 'Archive' CHECK (state IN ('Archive', 'Library')),
  title      TEXT,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, project_id, book_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE media_assets (
  tenant_id    TEXT NOT NULL,
  project_id   TEXT NOT NULL,
  book_id      TEXT NOT NULL,
  media_type   TEXT NOT NULL,
  status       TEXT NOT NULL CHECK (status IN ('available', 'missing', 'removed')),
  storage_path TEXT,
  source_url   TEXT,
  artifact_id  TEXT,
  job_id       TEXT,
  updated_at   INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, project_id, book_id, media_type),
  FOREIGN KEY (tenant_id, project_id, book_id) REFERENCES books (tenant_id, project_id, book_id),
  FOREIGN KEY (tenant_id, project_id, artifact_id) REFERENCES artifacts (tenant_id, project_id, artifact_id),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id)
) STRICT, WITHOUT ROWID;

-- What the torrent side knows of its jobs beside jobs itself.
CREATE TABLE torrents (
  tenant_id   TEXT NOT NULL,
  project_id  TEXT NOT NULL,
  job_id      TEXT NOT NULL,
  infohash_v1 TEXT,
  infohash_v2 TEXT,
  metainfo    BLOB,
  synced_at   INTEGER NOT NULL DEFAULT 0,
  released_at INTEGER,
  held_at     INTEGER,      -- the client did not answer since then: its clocks stand still
  watch       TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY (tenant_id, project_id, job_id),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
-- The rotation of the sync loop, and who else uses the same torrent.
CREATE INDEX torrents_synced ON torrents (synced_at);
CREATE INDEX torrents_v1 ON torrents (infohash_v1) WHERE infohash_v1 IS NOT NULL;
CREATE INDEX torrents_v2 ON torrents (infohash_v2) WHERE infohash_v2 IS NOT NULL;

CREATE TABLE tokens (
  token_id     TEXT PRIMARY KEY,
  kind         TEXT NOT NULL CHECK (kind IN ('api', 'session')),
  parent_id    TEXT,
  name         TEXT NOT NULL,
  token_hash   TEXT NOT NULL UNIQUE,
  tenant_id    TEXT NOT NULL,
  project_id   TEXT NOT NULL,
  scopes       TEXT NOT NULL,
  created_at   INTEGER NOT NULL,
  expires_at   INTEGER,
  revoked_at   INTEGER,
  last_used_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_log (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant_id  TEXT NOT NULL,
  project_id TEXT NOT NULL,
  at         INTEGER NOT NULL,
  token_id   TEXT,
  action     TEXT NOT NULL,
  target     TEXT,
  detail     TEXT,
  remote     TEXT
) STRICT;
-- The audit page of one tenant.
CREATE INDEX audit_log_tenant ON audit_log (tenant_id, project_id);

-- Idempotency-Key of the HTTP API: the first answer, given again.
CREATE TABLE request_keys (
  tenant_id   TEXT NOT NULL,
  project_id  TEXT NOT NULL,
  request_key TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  answer      TEXT,
  created_at  INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, project_id, request_key)
) STRICT, WITHOUT ROWID;

-- The shapes written in the seeds, to read.
CREATE VIEW artifact_jobs AS
  SELECT job_id, COALESCE(work_id, canonical_url) AS work_id, COALESCE(source_ref, canonical_url) AS artifact_id,
         canonical_url, stage AS state, lease_owner, lease_until / 1000000.0 AS lease_until,
         created_at / 1000000.0 AS created_at, updated_at / 1000000.0 AS updated_at, idempotency_key,
         tenant_id, project_id
    FROM jobs WHERE job_type = 'download';
CREATE VIEW artifact_ops AS
  SELECT op_key, job_id, kind AS op_type, started_at / 1000000.0 AS started_at, finished_at / 1000000.0 AS finished_at,
         COALESCE(result_code, CASE state WHEN 'confirmed' THEN 'OK' WHEN 'intended' THEN NULL ELSE upper(state) END) AS result_code,
         result AS result_json, tenant_id, project_id
    FROM effects;
CREATE VIEW download_jobs AS
  SELECT job_id AS id, user_id, book_id, media_type, stage AS status, source, external_job_id,
         created_at AS created_at_utc, updated_at AS updated_at_utc, completed_at AS completed_at_utc,
         first_not_found_at AS first_not_found_at_utc, failure_reason, row_version, tenant_id, project_id
    FROM jobs WHERE job_type = 'torrent';

-- What the planner should believe of artifacts, before and without ANALYZE: a tenant has a million of them, a hash or a
-- job few. Without it a foreign key's look at the artifacts of a purged job would walk the tenant.
ANALYZE artifacts;
DELETE FROM sqlite_stat1;
INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES
  ('artifacts', 'artifacts', '1000000 1000000 1000000 1'),
  ('artifacts', 'artifacts_sha256', '1000000 1000000 1000000 1 1'),
  ('artifacts', 'artifacts_job', '1000000 1000000 1000000 1 1');
