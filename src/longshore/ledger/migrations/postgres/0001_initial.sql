-- The ledger, first edition, for PostgreSQL. Times are integer microseconds UTC. JSON is TEXT. Ids and words that are
-- compared or ordered have the collation "C": the order of SQLite, and cheaper.
-- Every index and trigger costs a write per row: each says why it is here. Keys begin with tenant and project; plain
-- indexes begin with what is special about them, so that a planner without statistics cannot take one for another.

-- The hash of a text, for keys that are longer than an index entry may be. (UTF8 is the encoding of every ledger.)
CREATE FUNCTION text_hash(text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
  AS $$ SELECT sha256(convert_to($1, 'UTF8')) $$;

CREATE TABLE _meta (
  key   TEXT COLLATE "C" PRIMARY KEY,
  value TEXT NOT NULL
);

-- Which migration was applied when, with the checksum of its text: an edited migration is drift.
CREATE TABLE _migrations (
  version    BIGINT PRIMARY KEY,
  name       TEXT NOT NULL,
  checksum   TEXT NOT NULL,
  applied_at BIGINT NOT NULL
);

-- The legal moves of domain/kinds.py as data; a test compares. 
CREATE TABLE stage_moves (
  machine    TEXT COLLATE "C" NOT NULL,   -- download | torrent | own
  from_stage TEXT COLLATE "C" NOT NULL,
  to_stage   TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (machine, from_stage, to_stage)
);
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

-- The same moves as a function: a trigger asks it for every row, and a look into a table costs more than the update.
CREATE FUNCTION stage_move(job_type text, a text, b text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE job_type
    WHEN 'download' THEN CASE a
      WHEN 'PLANNED' THEN b IN ('LEASED', 'SKIPPED_DUPLICATE', 'FAILED', 'canceled')
      WHEN 'LEASED' THEN b IN ('HEAD_DONE', 'RESUME_OK', 'STREAMING', 'FINALIZED', 'SKIPPED_DUPLICATE', 'FAILED', 'canceled')
      WHEN 'HEAD_DONE' THEN b IN ('RESUME_OK', 'STREAMING', 'SKIPPED_DUPLICATE', 'FAILED', 'canceled')
      WHEN 'RESUME_OK' THEN b IN ('STREAMING', 'FAILED', 'canceled')
      WHEN 'STREAMING' THEN b IN ('FINALIZED', 'FAILED', 'canceled')
      WHEN 'FINALIZED' THEN b IN ('INDEXED', 'DEDUPED', 'FAILED', 'canceled')
      ELSE false END
    WHEN 'torrent' THEN CASE a
      WHEN 'queued' THEN b IN ('downloading', 'failed', 'canceled')
      WHEN 'downloading' THEN b IN ('completed', 'failed', 'canceled')
      ELSE false END
    ELSE CASE a
      WHEN 'pending' THEN b IN ('processing', 'skipped', 'failed', 'canceled')
      WHEN 'processing' THEN b IN ('completed', 'skipped', 'failed', 'canceled')
      ELSE false END
    END
$$;

-- Politeness, shared by all workers and all tenants. NULL = the program's default.
CREATE TABLE hosts (
  host           TEXT COLLATE "C" PRIMARY KEY,
  concurrency    BIGINT CHECK (concurrency >= 0),
  rate_per_s     DOUBLE PRECISION CHECK (rate_per_s >= 0),
  paused         INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
  cooldown_until BIGINT,                      -- Retry-After: the whole host rests
  failures       BIGINT NOT NULL DEFAULT 0,   -- consecutive faults of the host: the breaker
  failed_at      BIGINT,                      -- the last of them
  next_start_at  BIGINT,                      -- rate: the earliest next start
  reason         TEXT,                         -- of the last fault
  updated_at     BIGINT NOT NULL
);

-- A lane is what is ready for one host, type and scope: claim walks lanes, never the table of jobs.
-- ready may be 1 for an empty lane (the claim that finds it so clears it), never 0 for a lane with ready jobs.
CREATE TABLE lanes (
  lane_id      BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  tenant_id    TEXT COLLATE "C" NOT NULL,
  project_id   TEXT COLLATE "C" NOT NULL,
  host         TEXT COLLATE "C" NOT NULL,
  job_type     TEXT COLLATE "C" NOT NULL,
  ready        INTEGER NOT NULL DEFAULT 0 CHECK (ready IN (0, 1)),
  top          BIGINT NOT NULL DEFAULT 0,   -- no ready job has a higher priority than this
  turn         BIGINT NOT NULL DEFAULT 0,   -- when it was last served: the longest unserved comes first
  parked_until BIGINT,                      -- its host is full or rests until then
  UNIQUE (tenant_id, project_id, host, job_type)
);
-- The walk: the open lanes of a tenant in the order in which they are served.
CREATE INDEX lanes_open ON lanes (tenant_id, top DESC, turn, job_type, project_id) WHERE ready = 1 AND parked_until IS NULL;
-- Opening lanes whose rest is over, and those of a host that got a free slot.
CREATE INDEX lanes_parked ON lanes (parked_until) WHERE parked_until IS NOT NULL;
CREATE INDEX lanes_parked_host ON lanes (host) WHERE parked_until IS NOT NULL;

CREATE TABLE jobs (
  seq            BIGINT NOT NULL GENERATED BY DEFAULT AS IDENTITY,          -- order of planning
  tenant_id      TEXT COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  project_id     TEXT COLLATE "C" NOT NULL CHECK (project_id <> ''),
  job_id         TEXT COLLATE "C" NOT NULL,
  job_type       TEXT COLLATE "C" NOT NULL CHECK (job_type <> ''),
  status         TEXT COLLATE "C" NOT NULL,
  stage          TEXT COLLATE "C" NOT NULL,
  ready          INTEGER NOT NULL DEFAULT 0 CHECK (ready IN (0, 1)),   -- claimable now
  lane_id        BIGINT NOT NULL REFERENCES lanes (lane_id),
  priority       BIGINT NOT NULL DEFAULT 0,
  lease_owner    TEXT COLLATE "C",
  lease_until    BIGINT,
  lease_epoch    BIGINT NOT NULL DEFAULT 0 CHECK (lease_epoch >= 0),
  slot_host      TEXT COLLATE "C",                         -- the host whose slot this lease uses now
  lease_slots    BIGINT,                      -- how many slots its owner has at that host
  row_version    BIGINT NOT NULL DEFAULT 1,
  attempts       BIGINT NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  claims         BIGINT NOT NULL DEFAULT 0 CHECK (claims >= 0),
  next_attempt_at     BIGINT,
  cancel_requested_at BIGINT,
  created_at     BIGINT NOT NULL,
  updated_at     BIGINT NOT NULL,
  completed_at   BIGINT,
  failed_at      BIGINT,
  idempotency_key TEXT COLLATE "C",
  superseded     INTEGER NOT NULL DEFAULT 0 CHECK (superseded IN (0, 1)),  -- a linked retry took the key over
  work_id        TEXT,                         -- NULL: the same as canonical_url
  source_ref     TEXT,                         -- the seeds' artifact_id; NULL: the same as canonical_url
  url            TEXT,                         -- as given; NULL: the same as canonical_url
  canonical_url  TEXT,
  host           TEXT COLLATE "C" NOT NULL DEFAULT '',     -- what politeness counts it under; learned from redirects
  request        TEXT,                         -- JSON: mirrors, expect, headers, name, params
  progress       BIGINT CHECK (progress BETWEEN 0 AND 100),
  bytes_done     BIGINT,
  bytes_total    BIGINT,
  error_code     TEXT COLLATE "C",                         -- the last attempt's own reason
  error_message_safe TEXT,
  error_debug_id TEXT,
  max_attempts   BIGINT,
  run_id         TEXT COLLATE "C",
  request_id     TEXT COLLATE "C",
  reuse_of_job_id TEXT COLLATE "C",
  retry_of       TEXT COLLATE "C",
  user_id        TEXT COLLATE "C",
  book_id        TEXT COLLATE "C",
  media_type     TEXT COLLATE "C",
  source         TEXT,
  external_job_id TEXT COLLATE "C",
  first_not_found_at BIGINT,
  failure_reason TEXT,
  PRIMARY KEY (tenant_id, project_id, job_id),     -- target of every foreign key; uuid7, so it appends and lists in order
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
);
-- A row by its number, for the writes of a batch. Hash: it cannot be taken for an order over all tenants.
CREATE INDEX jobs_seq ON jobs USING hash (seq);
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
CREATE INDEX jobs_list ON jobs (status, tenant_id, project_id, seq);
-- Failures by reason and host, newest last; only what failed and was not tried again is in it.
CREATE INDEX jobs_failed ON jobs (error_code, host, tenant_id, project_id, seq) WHERE status = 'failed' AND superseded = 0;
-- Jobs of a work; only those whose work is more than their URL pay for it.
CREATE INDEX jobs_work ON jobs (text_hash(work_id), tenant_id, project_id, seq) WHERE work_id IS NOT NULL;
-- Links between jobs: a purge asks who points here.
CREATE INDEX jobs_retry_of ON jobs (retry_of, tenant_id, project_id) WHERE retry_of IS NOT NULL;
CREATE INDEX jobs_reuse_of ON jobs (reuse_of_job_id, tenant_id, project_id) WHERE reuse_of_job_id IS NOT NULL;
-- Seed 002: one active download per user, book and medium.
CREATE UNIQUE INDEX jobs_one_torrent ON jobs (tenant_id, user_id, book_id, media_type)
  WHERE job_type = 'torrent' AND (status = 'pending' OR status = 'processing');

-- Terminal is final; epochs only grow, by one, and only where no lease is held; a stage only moves along stage_moves,
-- back to the start when the lease ends, or to the start of an attempt when one is granted; the result comes first.
CREATE FUNCTION jobs_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.status IN ('completed', 'failed', 'skipped', 'canceled') THEN
    RAISE EXCEPTION 'longshore:terminal: nothing leaves a terminal stage';
  ELSIF NEW.lease_epoch < OLD.lease_epoch OR NEW.lease_epoch > OLD.lease_epoch + 1 THEN
    RAISE EXCEPTION 'longshore:epoch: a lease epoch grows by one';
  ELSIF NEW.lease_epoch > OLD.lease_epoch AND (OLD.lease_owner IS NOT NULL OR NEW.lease_owner IS NULL) THEN
    RAISE EXCEPTION 'longshore:lease: a lease is granted where none is held';
  ELSIF NEW.lease_epoch = OLD.lease_epoch AND NEW.lease_owner IS NOT NULL
    AND OLD.lease_owner IS DISTINCT FROM NEW.lease_owner THEN
    RAISE EXCEPTION 'longshore:lease: a new owner needs a new epoch';
  END IF;
  IF NEW.stage <> OLD.stage
    AND NOT (OLD.lease_owner IS NOT NULL AND NEW.lease_owner IS NULL AND NEW.lease_epoch = OLD.lease_epoch
      AND ((NEW.job_type = 'download' AND NEW.stage = 'PLANNED')
        OR (NEW.job_type NOT IN ('download', 'torrent') AND NEW.stage = 'pending')))
    AND NOT stage_move(NEW.job_type, OLD.stage, NEW.stage) THEN
    RAISE EXCEPTION 'longshore:invalid_transition: no such move';
  END IF;
  IF NEW.status = 'completed' AND OLD.status <> 'completed' AND NEW.job_type IN ('download', 'torrent', 'upload')
    AND NOT EXISTS (SELECT 1 FROM job_artifacts a WHERE a.tenant_id = NEW.tenant_id AND a.project_id = NEW.project_id
      AND a.job_id = NEW.job_id AND a.role = 'result') THEN
    RAISE EXCEPTION 'longshore:result: a completed job has a result';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER jobs_moves BEFORE UPDATE OF status, stage, lease_epoch, lease_owner ON jobs FOR EACH ROW
  WHEN (OLD.stage <> NEW.stage OR OLD.lease_epoch <> NEW.lease_epoch OR OLD.lease_owner IS DISTINCT FROM NEW.lease_owner)
  EXECUTE FUNCTION jobs_moves();
-- What the trigger says, whatever it guards.
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '%', TG_ARGV[0]; END $$;
-- Who a job is does not change.
CREATE TRIGGER jobs_identity BEFORE UPDATE OF tenant_id, project_id, job_id, job_type, idempotency_key, created_at ON jobs FOR EACH ROW
  EXECUTE FUNCTION refuse('longshore:immutable: the identity of a job does not change');

-- One row per grant: who, when, how it ended.
CREATE TABLE job_claims (
  tenant_id  TEXT COLLATE "C" NOT NULL,
  project_id TEXT COLLATE "C" NOT NULL,
  job_id     TEXT COLLATE "C" NOT NULL,
  epoch      BIGINT NOT NULL,
  owner      TEXT COLLATE "C" NOT NULL,
  host       TEXT COLLATE "C" NOT NULL DEFAULT '',
  claimed_at BIGINT NOT NULL,
  ended_at   BIGINT,
  outcome    TEXT,      -- completed skipped failed deferred released canceled expired dead
  reason     TEXT,
  PRIMARY KEY (tenant_id, project_id, job_id, epoch),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id) ON DELETE CASCADE,
  CHECK ((ended_at IS NULL) = (outcome IS NULL))
);

-- One row per side effect: intent before, outcome after.
CREATE TABLE effects (
  tenant_id    TEXT COLLATE "C" NOT NULL,
  project_id   TEXT COLLATE "C" NOT NULL,
  job_id       TEXT COLLATE "C" NOT NULL,
  op_key       TEXT COLLATE "C" NOT NULL,
  kind         TEXT COLLATE "C" NOT NULL,
  effect_class TEXT COLLATE "C" NOT NULL CHECK (effect_class IN ('transactional', 'keyed', 'verifiable', 'opaque')),
  fingerprint  TEXT,
  request      TEXT,
  state        TEXT COLLATE "C" NOT NULL CHECK (state IN ('intended', 'confirmed', 'failed', 'in_doubt', 'abandoned')),
  epoch        BIGINT NOT NULL,
  started_at   BIGINT NOT NULL,
  finished_at  BIGINT,
  result_code  TEXT,
  result       TEXT,
  PRIMARY KEY (tenant_id, project_id, job_id, op_key),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id) ON DELETE CASCADE,
  CHECK (state <> 'confirmed' OR (finished_at IS NOT NULL AND result IS NOT NULL))
);
-- A key names one effect, whichever job asks.
CREATE UNIQUE INDEX effects_key ON effects (tenant_id, project_id, op_key);
-- A confirmed effect is a fact.
CREATE TRIGGER effects_confirmed BEFORE UPDATE ON effects FOR EACH ROW WHEN (OLD.state = 'confirmed')
  EXECUTE FUNCTION refuse('longshore:immutable: a confirmed effect does not change');

-- The hash index: published bytes of a project.
CREATE TABLE blobs (
  tenant_id       TEXT COLLATE "C" NOT NULL,
  project_id      TEXT COLLATE "C" NOT NULL,
  sha256          TEXT COLLATE "C" NOT NULL CHECK (length(sha256) = 64),
  byte_size       BIGINT NOT NULL CHECK (byte_size >= 0),
  storage_backend TEXT NOT NULL,
  storage_pointer TEXT NOT NULL,
  content_type    TEXT NOT NULL,
  created_at      BIGINT NOT NULL,
  verified_at     BIGINT,
  PRIMARY KEY (tenant_id, project_id, sha256)
);

-- The registry. artifact_id is time-ordered, so the table itself lists newest first.
CREATE TABLE artifacts (
  tenant_id         TEXT COLLATE "C" NOT NULL,
  project_id        TEXT COLLATE "C" NOT NULL,
  artifact_id       TEXT COLLATE "C" NOT NULL,
  artifact_type     TEXT COLLATE "C" NOT NULL CHECK (artifact_type <> ''),
  storage_backend   TEXT NOT NULL,
  storage_pointer   TEXT NOT NULL,
  content_type      TEXT NOT NULL,
  byte_size         BIGINT NOT NULL CHECK (byte_size >= 0),
  sha256            TEXT COLLATE "C" NOT NULL,
  schema_version    TEXT,
  name              TEXT,
  metadata          TEXT,
  created_at        BIGINT NOT NULL,
  created_by_job_id TEXT COLLATE "C" NOT NULL,
  previous_id       TEXT COLLATE "C",
  availability      TEXT COLLATE "C" NOT NULL DEFAULT 'available' CHECK (availability IN ('available', 'missing')),
  PRIMARY KEY (tenant_id, project_id, artifact_id),
  FOREIGN KEY (tenant_id, project_id, created_by_job_id) REFERENCES jobs (tenant_id, project_id, job_id),
  FOREIGN KEY (tenant_id, project_id, sha256) REFERENCES blobs (tenant_id, project_id, sha256)
);
-- Artifacts of a hash: dedupe, verify, gc.
CREATE INDEX artifacts_sha256 ON artifacts (sha256, tenant_id, project_id, artifact_id);
-- Who points to a job: its foreign key, when jobs are purged. Job ids are time-ordered, so it appends.
CREATE INDEX artifacts_job ON artifacts (created_by_job_id, tenant_id, project_id);
-- What is lost, for verify and the overview.
CREATE INDEX artifacts_missing ON artifacts (tenant_id, project_id) WHERE availability = 'missing';
CREATE TRIGGER artifacts_immutable BEFORE UPDATE OF tenant_id, project_id, artifact_id, artifact_type, storage_backend,
  storage_pointer, content_type, byte_size, sha256, schema_version, name, metadata, created_at, created_by_job_id, previous_id
  ON artifacts FOR EACH ROW
  EXECUTE FUNCTION refuse('longshore:immutable: an artifact does not change');

CREATE TABLE job_artifacts (
  tenant_id   TEXT COLLATE "C" NOT NULL,
  project_id  TEXT COLLATE "C" NOT NULL,
  job_id      TEXT COLLATE "C" NOT NULL,
  role        TEXT COLLATE "C" NOT NULL CHECK (role IN ('input', 'result')),
  ordinal     BIGINT NOT NULL CHECK (ordinal >= 0),
  artifact_id TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant_id, project_id, job_id, role, ordinal),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id),
  FOREIGN KEY (tenant_id, project_id, artifact_id) REFERENCES artifacts (tenant_id, project_id, artifact_id)
);
-- Which jobs an artifact came from or went into.
CREATE INDEX job_artifacts_artifact ON job_artifacts (artifact_id, tenant_id, project_id);

-- What a URL last gave.
CREATE TABLE url_versions (
  tenant_id      TEXT COLLATE "C" NOT NULL,
  project_id     TEXT COLLATE "C" NOT NULL,
  canonical_url  TEXT NOT NULL,
  sha256         TEXT COLLATE "C" NOT NULL,
  byte_size      BIGINT NOT NULL,
  etag           TEXT,
  last_modified  TEXT,
  final_url      TEXT,
  artifact_id    TEXT COLLATE "C" NOT NULL,
  job_id         TEXT COLLATE "C" NOT NULL,
  previous_artifact_id TEXT COLLATE "C",      -- the version before this one
  seen_at        BIGINT NOT NULL,
  revalidated_at BIGINT NOT NULL,
  url_hash       BYTEA NOT NULL GENERATED ALWAYS AS (text_hash(canonical_url)) STORED,  -- a URL may be longer than an index entry
  PRIMARY KEY (tenant_id, project_id, url_hash),
  FOREIGN KEY (tenant_id, project_id, sha256) REFERENCES blobs (tenant_id, project_id, sha256)
);

-- Append-only history. A job's row is its creation event, a row of job_claims its start; everything else stands here.
-- Numbers of events follow the transaction that wrote them: below `events_horizon` nothing can appear any more. (A plain
-- sequence is drawn before the commit, and a reader would run past a number that comes later.) `events_base` lifts the
-- numbers of a ledger that came from another server, whose transactions counted further.
CREATE SEQUENCE events_ordinal;
CREATE SEQUENCE events_base MINVALUE 0 START 0;
CREATE FUNCTION event_seq() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (SELECT last_value FROM events_base) + ((pg_current_xact_id()::text::bigint << 20) | (nextval('events_ordinal') & 1048575))
$$;
CREATE FUNCTION events_horizon() RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT (SELECT last_value FROM events_base) + (pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 20)
$$;
CREATE TABLE events (
  seq        BIGINT NOT NULL DEFAULT event_seq(),
  tenant_id  TEXT COLLATE "C" NOT NULL,
  project_id TEXT COLLATE "C" NOT NULL,
  job_id     TEXT COLLATE "C",
  kind       TEXT COLLATE "C" NOT NULL,
  at         BIGINT NOT NULL,
  facts      TEXT,
  PRIMARY KEY (tenant_id, project_id, seq)    -- what happened in a project after a number: live updates
);
-- The timeline of one job.
CREATE INDEX events_job ON events (job_id, tenant_id, project_id, seq);
CREATE TRIGGER events_append_only BEFORE UPDATE ON events FOR EACH ROW
  EXECUTE FUNCTION refuse('longshore:immutable: history does not change');

-- How many jobs have which status: never count(*). Slots spread writers on PostgreSQL; SQLite uses slot 0.
CREATE TABLE counters (
  tenant_id  TEXT COLLATE "C" NOT NULL,
  project_id TEXT COLLATE "C" NOT NULL,
  status     TEXT COLLATE "C" NOT NULL,
  slot       BIGINT NOT NULL DEFAULT 0,
  n          BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, status, slot)
);

-- How many failed jobs that nobody tried again there are of which reason at which host: kept by triggers, never counted.
CREATE TABLE failure_counts (
  tenant_id  TEXT COLLATE "C" NOT NULL,
  project_id TEXT COLLATE "C" NOT NULL,
  error_code TEXT COLLATE "C" NOT NULL,
  host       TEXT COLLATE "C" NOT NULL,
  slot       BIGINT NOT NULL DEFAULT 0,
  n          BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, error_code, host, slot)
);
CREATE FUNCTION failures_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_ARGV[0] = '1' THEN
    INSERT INTO failure_counts (tenant_id, project_id, error_code, host, slot, n)
    VALUES (NEW.tenant_id, NEW.project_id, NEW.error_code, NEW.host, pg_backend_pid() % 32, 1)
    ON CONFLICT (tenant_id, project_id, error_code, host, slot) DO UPDATE SET n = failure_counts.n + 1;
  ELSE
    INSERT INTO failure_counts (tenant_id, project_id, error_code, host, slot, n)
    VALUES (OLD.tenant_id, OLD.project_id, OLD.error_code, OLD.host, pg_backend_pid() % 32, -1)
    ON CONFLICT (tenant_id, project_id, error_code, host, slot) DO UPDATE SET n = failure_counts.n - 1;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER failures_more AFTER UPDATE OF status ON jobs FOR EACH ROW
  WHEN (NEW.status = 'failed' AND OLD.status <> 'failed' AND NEW.superseded = 0) EXECUTE FUNCTION failures_count('1');
CREATE TRIGGER failures_born AFTER INSERT ON jobs FOR EACH ROW
  WHEN (NEW.status = 'failed' AND NEW.superseded = 0) EXECUTE FUNCTION failures_count('1');
CREATE TRIGGER failures_tried_again AFTER UPDATE OF superseded ON jobs FOR EACH ROW
  WHEN (NEW.status = 'failed' AND OLD.superseded = 0 AND NEW.superseded = 1) EXECUTE FUNCTION failures_count('-1');
CREATE TRIGGER failures_forgotten AFTER DELETE ON jobs FOR EACH ROW
  WHEN (OLD.status = 'failed' AND OLD.superseded = 0) EXECUTE FUNCTION failures_count('-1');

-- What a purge leaves of a job: its key still answers.
CREATE TABLE tombstones (
  tenant_id       TEXT COLLATE "C" NOT NULL,
  project_id      TEXT COLLATE "C" NOT NULL,
  job_type        TEXT COLLATE "C" NOT NULL,
  idempotency_key TEXT COLLATE "C" NOT NULL,
  job_id          TEXT COLLATE "C" NOT NULL,
  status          TEXT COLLATE "C" NOT NULL,
  stage           TEXT COLLATE "C" NOT NULL,
  artifact_id     TEXT COLLATE "C",
  purged_at       BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, job_type, idempotency_key)
);

CREATE TABLE books (
  tenant_id  TEXT COLLATE "C" NOT NULL,
  project_id TEXT COLLATE "C" NOT NULL,
  book_id    TEXT COLLATE "C" NOT NULL,
  state      TEXT COLLATE "C" NOT NULL DEFAULT 'Archive' CHECK (state IN ('Archive', 'Library')),
  title      TEXT,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, book_id)
);

CREATE TABLE media_assets (
  tenant_id    TEXT COLLATE "C" NOT NULL,
  project_id   TEXT COLLATE "C" NOT NULL,
  book_id      TEXT COLLATE "C" NOT NULL,
  media_type   TEXT COLLATE "C" NOT NULL,
  status       TEXT COLLATE "C" NOT NULL CHECK (status IN ('available', 'missing', 'removed')),
  storage_path TEXT,
  source_url   TEXT,
  artifact_id  TEXT COLLATE "C",
  job_id       TEXT COLLATE "C",
  updated_at   BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, book_id, media_type),
  FOREIGN KEY (tenant_id, project_id, book_id) REFERENCES books (tenant_id, project_id, book_id),
  FOREIGN KEY (tenant_id, project_id, artifact_id) REFERENCES artifacts (tenant_id, project_id, artifact_id),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id)
);

-- What the torrent side knows of its jobs beside jobs itself.
CREATE TABLE torrents (
  tenant_id   TEXT COLLATE "C" NOT NULL,
  project_id  TEXT COLLATE "C" NOT NULL,
  job_id      TEXT COLLATE "C" NOT NULL,
  infohash_v1 TEXT COLLATE "C",
  infohash_v2 TEXT COLLATE "C",
  metainfo    BYTEA,
  synced_at   BIGINT NOT NULL DEFAULT 0,
  released_at BIGINT,
  held_at     BIGINT,      -- the client did not answer since then: its clocks stand still
  watch       TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY (tenant_id, project_id, job_id),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id) ON DELETE CASCADE
);
-- The rotation of the sync loop, and who else uses the same torrent.
CREATE INDEX torrents_synced ON torrents (synced_at);
CREATE INDEX torrents_v1 ON torrents (infohash_v1) WHERE infohash_v1 IS NOT NULL;
CREATE INDEX torrents_v2 ON torrents (infohash_v2) WHERE infohash_v2 IS NOT NULL;

CREATE TABLE tokens (
  token_id     TEXT COLLATE "C" PRIMARY KEY,
  kind         TEXT COLLATE "C" NOT NULL CHECK (kind IN ('api', 'session')),
  parent_id    TEXT COLLATE "C",
  name         TEXT NOT NULL,
  token_hash   TEXT COLLATE "C" NOT NULL UNIQUE,
  tenant_id    TEXT COLLATE "C" NOT NULL,
  project_id   TEXT COLLATE "C" NOT NULL,
  scopes       TEXT NOT NULL,
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT,
  revoked_at   BIGINT,
  last_used_at BIGINT
);

CREATE TABLE audit_log (
  seq        BIGINT NOT NULL GENERATED BY DEFAULT AS IDENTITY,
  tenant_id  TEXT COLLATE "C" NOT NULL,
  project_id TEXT COLLATE "C" NOT NULL,
  at         BIGINT NOT NULL,
  token_id   TEXT COLLATE "C",
  action     TEXT NOT NULL,
  target     TEXT,
  detail     TEXT,
  remote     TEXT,
  PRIMARY KEY (tenant_id, project_id, seq)    -- the audit page of one tenant
);

-- Idempotency-Key of the HTTP API: the first answer, given again.
CREATE TABLE request_keys (
  tenant_id   TEXT COLLATE "C" NOT NULL,
  project_id  TEXT COLLATE "C" NOT NULL,
  request_key TEXT COLLATE "C" NOT NULL,
  fingerprint TEXT NOT NULL,
  answer      TEXT,
  created_at  BIGINT NOT NULL,
  PRIMARY KEY (tenant_id, project_id, request_key)
);

-- The shapes written in the seeds, to read.
CREATE VIEW artifact_jobs WITH (security_invoker = true) AS
  SELECT job_id, COALESCE(work_id, canonical_url) AS work_id, COALESCE(source_ref, canonical_url) AS artifact_id,
         canonical_url, stage AS state, lease_owner, CAST(lease_until / 1000000.0 AS DOUBLE PRECISION) AS lease_until,
         CAST(created_at / 1000000.0 AS DOUBLE PRECISION) AS created_at, CAST(updated_at / 1000000.0 AS DOUBLE PRECISION) AS updated_at, idempotency_key,
         tenant_id, project_id
    FROM jobs WHERE job_type = 'download';
CREATE VIEW artifact_ops WITH (security_invoker = true) AS
  SELECT op_key, job_id, kind AS op_type, CAST(started_at / 1000000.0 AS DOUBLE PRECISION) AS started_at, CAST(finished_at / 1000000.0 AS DOUBLE PRECISION) AS finished_at,
         COALESCE(result_code, CASE state WHEN 'confirmed' THEN 'OK' WHEN 'intended' THEN NULL ELSE upper(state) END) AS result_code,
         result AS result_json, tenant_id, project_id
    FROM effects;
CREATE VIEW download_jobs WITH (security_invoker = true) AS
  SELECT job_id AS id, user_id, book_id, media_type, stage AS status, source, external_job_id,
         created_at AS created_at_utc, updated_at AS updated_at_utc, completed_at AS completed_at_utc,
         first_not_found_at AS first_not_found_at_utc, failure_reason, row_version, tenant_id, project_id
    FROM jobs WHERE job_type = 'torrent';

-- Who is asking. Unset is an error, never "everything" and never "nothing".
CREATE FUNCTION current_tenant() RETURNS text LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
  tenant text := current_setting('longshore.tenant', true);
BEGIN
  IF tenant IS NULL OR tenant = '' THEN
    RAISE EXCEPTION 'longshore:tenant: no tenant is set' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN tenant;
END $$;

-- Roles. The owner is whoever runs this. The application works as longshore_app: it sees the tenant that it set, and
-- nothing else. longshore_dispatcher owns the few functions that must see all tenants; nobody logs in as it.
DO $$
DECLARE
  role text;
BEGIN
  FOREACH role IN ARRAY ARRAY['longshore_app', 'longshore_dispatcher'] LOOP
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = role) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE', role);
      EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- another ledger of this server was faster
      END;
    END IF;
    BEGIN
      EXECUTE format('GRANT %I TO CURRENT_USER', role);
    EXCEPTION WHEN insufficient_privilege THEN
      IF NOT pg_has_role(current_user, role, 'MEMBER') THEN RAISE; END IF;  -- somebody else gave it to us
    END;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), role);
  END LOOP;
END $$;

-- Row-level security on everything that has a tenant, for the owner too. tokens is looked up before a tenant is known.
-- (SELECT …): once per statement, and the planner does not judge by who happens to ask.
DO $$
DECLARE
  name text;
BEGIN
  FOR name IN SELECT c.table_name FROM information_schema.columns c
      JOIN information_schema.tables t USING (table_schema, table_name)
     WHERE c.table_schema = current_schema() AND c.column_name = 'tenant_id' AND t.table_type = 'BASE TABLE'
       AND c.table_name <> 'tokens' LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY tenant ON %I USING (tenant_id = (SELECT current_tenant())) WITH CHECK (tenant_id = current_tenant())', name);
    EXECUTE format('CREATE POLICY dispatcher ON %I TO longshore_dispatcher USING (true) WITH CHECK (true)', name);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO longshore_app, longshore_dispatcher', name);
  END LOOP;
  -- The rest has no tenant; what is the same for everybody may be read and not changed.
  FOREACH name IN ARRAY ARRAY['stage_moves', '_migrations'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY everybody ON %I FOR SELECT USING (true)', name);
    EXECUTE format('GRANT SELECT ON %I TO longshore_app, longshore_dispatcher', name);
  END LOOP;
  FOREACH name IN ARRAY ARRAY['_meta', 'hosts', 'tokens'] LOOP
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO longshore_app, longshore_dispatcher', name);
  END LOOP;
  FOREACH name IN ARRAY ARRAY['artifact_jobs', 'artifact_ops', 'download_jobs'] LOOP
    EXECUTE format('GRANT SELECT ON %I TO longshore_app', name);
  END LOOP;
  EXECUTE format('GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA %I TO longshore_app, longshore_dispatcher', current_schema());
  GRANT UPDATE ON SEQUENCE events_base TO longshore_dispatcher;
END $$;

-- What must see all tenants: functions of the dispatcher, run with its rights. They take and give as little as they can.
-- Rows that somebody else works on are skipped, never waited for.

-- The tenants that have an open lane, after one of them: a loose scan, one probe per tenant.
CREATE FUNCTION dispatch_open_tenants(p_after text, p_many bigint) RETURNS TABLE (tenant_id text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  name text := p_after;
BEGIN
  FOR i IN 1 .. p_many LOOP
    SELECT l.tenant_id INTO name FROM lanes l
     WHERE l.ready = 1 AND l.parked_until IS NULL AND l.tenant_id > name COLLATE "C" ORDER BY l.tenant_id LIMIT 1;
    EXIT WHEN name IS NULL;
    tenant_id := name;
    RETURN NEXT;
  END LOOP;
END $$;

-- The open lanes of a tenant in the order in which they are served.
CREATE FUNCTION dispatch_open_lanes(p_tenant text, p_project text, p_types jsonb, p_many bigint)
RETURNS TABLE (lane_id bigint, host text, top bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT l.lane_id, l.host, l.top FROM lanes l
   WHERE l.ready = 1 AND l.parked_until IS NULL AND l.tenant_id = p_tenant
     AND (p_project IS NULL OR l.project_id = p_project)
     AND CASE WHEN p_types IS NULL THEN l.job_type <> 'torrent' ELSE p_types ? l.job_type END
   ORDER BY l.top DESC, l.turn LIMIT p_many;
END $$;

-- The next ready jobs of a lane that nobody else is taking.
CREATE FUNCTION dispatch_lane_heads(p_lane bigint, p_many bigint) RETURNS SETOF jobs
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY WITH heads AS MATERIALIZED (
    SELECT j.* FROM jobs j WHERE j.lane_id = p_lane AND j.ready = 1
     ORDER BY j.priority DESC, j.seq LIMIT p_many FOR NO KEY UPDATE SKIP LOCKED)
  SELECT * FROM heads;
END $$;

-- A lane was served. `ready` goes to 0 only where nothing is left and nobody is adding: whoever makes a job ready holds
-- the lane's row by KEY SHARE (a foreign key does, and dispatch_mark_lanes), which this FOR UPDATE does not get past.
CREATE FUNCTION dispatch_lanes_served(p_turns bigint[], p_lanes bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  lane record;
  head bigint;
BEGIN
  FOR lane IN SELECT r.id, r.turn FROM unnest(p_lanes, p_turns) AS r (id, turn) ORDER BY r.id LOOP
    SELECT j.priority INTO head FROM jobs j WHERE j.lane_id = lane.id AND j.ready = 1
     ORDER BY j.priority DESC, j.seq LIMIT 1;
    IF head IS NOT NULL THEN
      UPDATE lanes l SET turn = greatest(lane.turn, l.turn + 1), top = head
       WHERE l.lane_id = (SELECT s.lane_id FROM lanes s WHERE s.lane_id = lane.id FOR NO KEY UPDATE SKIP LOCKED);
    ELSE
      PERFORM 1 FROM lanes l WHERE l.lane_id = lane.id FOR UPDATE SKIP LOCKED;
      IF FOUND THEN
        UPDATE lanes l SET turn = greatest(lane.turn, l.turn + 1), ready = 0
         WHERE l.lane_id = lane.id AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.lane_id = lane.id AND j.ready = 1);
      END IF;
    END IF;
  END LOOP;
END $$;

-- Their host is full or rests: these lanes are not looked at before a time.
CREATE FUNCTION dispatch_park(p_until bigint[], p_lanes bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  WITH free AS MATERIALIZED (SELECT l.lane_id FROM lanes l WHERE l.lane_id = ANY (p_lanes) FOR NO KEY UPDATE SKIP LOCKED)
  UPDATE lanes l SET parked_until = r.until
    FROM unnest(p_until, p_lanes) AS r (until, id) WHERE l.lane_id = r.id AND l.lane_id IN (SELECT f.lane_id FROM free f);
END $$;

-- Lanes got ready jobs.
CREATE FUNCTION dispatch_mark_lanes(p_tops bigint[], p_lanes bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM 1 FROM lanes l WHERE l.lane_id = ANY (p_lanes) ORDER BY l.lane_id FOR KEY SHARE;
  UPDATE lanes l SET top = CASE WHEN l.ready = 1 THEN greatest(l.top, r.top) ELSE r.top END, ready = 1
    FROM unnest(p_tops, p_lanes) AS r (top, id)
   WHERE l.lane_id = r.id AND (l.ready = 0 OR l.top < r.top);
END $$;

-- The rest of some hosts is over.
CREATE FUNCTION dispatch_unpark_due(p_now bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  WITH due AS MATERIALIZED (SELECT l.lane_id FROM lanes l WHERE l.parked_until <= p_now FOR NO KEY UPDATE SKIP LOCKED)
  UPDATE lanes l SET parked_until = NULL FROM due WHERE l.lane_id = due.lane_id;
END $$;

-- A slot got free. A claim that is deciding about the host now holds its row: wait for it, or its parking comes after.
CREATE FUNCTION dispatch_unpark_hosts(p_hosts text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM 1 FROM hosts h WHERE h.host = ANY (p_hosts) ORDER BY h.host FOR SHARE;
  UPDATE lanes l SET parked_until = NULL WHERE l.host = ANY (p_hosts) AND l.parked_until IS NOT NULL;
END $$;

-- What is remembered of hosts, held until the end of the transaction, so that two claims do not share one slot.
CREATE FUNCTION hosts_held(p_hosts jsonb) RETURNS SETOF hosts LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO hosts (host, updated_at)
  SELECT n.host, 0 FROM jsonb_array_elements_text(p_hosts) AS n (host)
   WHERE NOT EXISTS (SELECT 1 FROM hosts h WHERE h.host = n.host) ORDER BY n.host
  ON CONFLICT (host) DO NOTHING;
  RETURN QUERY SELECT h.* FROM hosts h WHERE h.host = ANY (ARRAY(SELECT jsonb_array_elements_text(p_hosts)))
   ORDER BY h.host FOR NO KEY UPDATE;
END $$;

-- What is in flight at hosts, by owner, from live leases of all tenants.
CREATE FUNCTION dispatch_host_uses(p_hosts jsonb, p_now bigint)
RETURNS TABLE (slot_host text, lease_owner text, leases bigint, slots bigint, until bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT j.slot_host, j.lease_owner, count(*), max(j.lease_slots), min(j.lease_until) FROM jobs j
   WHERE j.slot_host = ANY (ARRAY(SELECT jsonb_array_elements_text(p_hosts))) AND j.lease_until > p_now
   GROUP BY j.slot_host, j.lease_owner;
END $$;

-- Leases that ended without a word.
CREATE FUNCTION dispatch_expired(p_now bigint, p_many bigint) RETURNS SETOF jobs
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT j.* FROM jobs j WHERE j.lease_until <= p_now
   ORDER BY j.lease_until LIMIT p_many FOR NO KEY UPDATE SKIP LOCKED;
END $$;

-- What processes hold that are known to be dead.
CREATE FUNCTION dispatch_leases_of(p_owners jsonb, p_many bigint) RETURNS SETOF jobs
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT j.* FROM jobs j WHERE j.lease_until IS NOT NULL AND p_owners ? j.lease_owner
   ORDER BY j.lease_until LIMIT p_many FOR NO KEY UPDATE;
END $$;

-- Waiting jobs whose time has come.
CREATE FUNCTION dispatch_promote(p_now bigint, p_many bigint)
RETURNS TABLE (lane_id bigint, priority bigint, job_type text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY WITH due AS MATERIALIZED (
    SELECT j.seq FROM jobs j WHERE j.next_attempt_at <= p_now
     ORDER BY j.next_attempt_at LIMIT p_many FOR NO KEY UPDATE SKIP LOCKED)
  UPDATE jobs j SET next_attempt_at = NULL, ready = CASE j.job_type WHEN 'torrent' THEN 0 ELSE 1 END
    FROM due WHERE j.seq = due.seq
  RETURNING j.lane_id, j.priority, j.job_type;
END $$;

-- The next moment at which something becomes claimable by itself.
CREATE FUNCTION dispatch_next_due(p_now bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM lanes WHERE ready = 1 AND parked_until IS NULL) THEN RETURN p_now; END IF;
  RETURN least((SELECT min(next_attempt_at) FROM jobs WHERE next_attempt_at IS NOT NULL),
               (SELECT min(lease_until) FROM jobs WHERE lease_until IS NOT NULL),
               (SELECT min(parked_until) FROM lanes WHERE parked_until IS NOT NULL AND ready = 1));
END $$;

-- Make and mark the lanes that get ready jobs; their rows are held until the jobs are there.
CREATE FUNCTION lanes_put(p_tenant text[], p_project text[], p_host text[], p_type text[], p_ready bigint[], p_top bigint[])
RETURNS TABLE (lane_id bigint, host text, job_type text) LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lanes (tenant_id, project_id, host, job_type, ready, top)
  SELECT r.* FROM unnest(p_tenant, p_project, p_host, p_type, p_ready, p_top) AS r (tenant, project, host, type, ready, top)
   WHERE NOT EXISTS (SELECT 1 FROM lanes l WHERE l.tenant_id = r.tenant AND l.project_id = r.project AND l.host = r.host
                       AND l.job_type = r.type)
   ORDER BY r.project, r.host, r.type
  ON CONFLICT ON CONSTRAINT lanes_tenant_id_project_id_host_job_type_key DO NOTHING;
  PERFORM 1 FROM unnest(p_tenant, p_project, p_host, p_type) AS r (tenant, project, host, type)
    JOIN lanes l ON l.tenant_id = r.tenant AND l.project_id = r.project AND l.host = r.host AND l.job_type = r.type
   ORDER BY l.lane_id FOR KEY SHARE OF l;
  UPDATE lanes l SET top = CASE WHEN l.ready = 1 THEN greatest(l.top, r.top) ELSE r.top END, ready = 1
    FROM unnest(p_tenant, p_project, p_host, p_type, p_ready, p_top) AS r (tenant, project, host, type, ready, top)
   WHERE l.tenant_id = r.tenant AND l.project_id = r.project AND l.host = r.host AND l.job_type = r.type
     AND r.ready = 1 AND (l.ready = 0 OR l.top < r.top);
  RETURN QUERY SELECT l.lane_id, l.host, l.job_type
    FROM unnest(p_tenant, p_project, p_host, p_type) AS r (tenant, project, host, type)
    JOIN lanes l ON l.tenant_id = r.tenant AND l.project_id = r.project AND l.host = r.host AND l.job_type = r.type;
END $$;

-- Reconciling the ledger with itself: what should never be there, over all tenants.
CREATE FUNCTION dispatch_jobs_forgotten(p_many bigint) RETURNS TABLE (seq bigint, lane_id bigint, priority bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT j.seq, j.lane_id, j.priority FROM jobs j
   WHERE j.status = 'pending' AND j.ready = 0 AND j.next_attempt_at IS NULL AND j.job_type <> 'torrent'
   ORDER BY j.seq LIMIT p_many FOR NO KEY UPDATE SKIP LOCKED;
END $$;
CREATE FUNCTION dispatch_jobs_ready(p_seqs bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  UPDATE jobs j SET ready = 1
   WHERE j.seq = ANY (p_seqs) AND j.status = 'pending' AND j.lease_owner IS NULL AND j.next_attempt_at IS NULL;
END $$;
CREATE FUNCTION dispatch_lanes_forgotten() RETURNS TABLE (lane_id bigint, priority bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT l.lane_id, (SELECT j.priority FROM jobs j WHERE j.lane_id = l.lane_id AND j.ready = 1
                                   ORDER BY j.priority DESC, j.seq LIMIT 1)
    FROM lanes l WHERE l.ready = 0 AND EXISTS (SELECT 1 FROM jobs j WHERE j.lane_id = l.lane_id AND j.ready = 1);
END $$;
CREATE FUNCTION dispatch_count_wrong() RETURNS TABLE (tenant_id text, project_id text, status text, n bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT b.tenant_id, b.project_id, b.status, CAST(sum(b.n) AS bigint) FROM (
      SELECT j.tenant_id, j.project_id, j.status, count(*) AS n FROM jobs j GROUP BY j.tenant_id, j.project_id, j.status
      UNION ALL SELECT a.tenant_id, a.project_id, 'artifacts', count(*) FROM artifacts a GROUP BY a.tenant_id, a.project_id
      UNION ALL SELECT a.tenant_id, a.project_id, 'artifact_bytes', sum(a.byte_size) FROM artifacts a GROUP BY a.tenant_id, a.project_id
      UNION ALL SELECT o.tenant_id, o.project_id, 'blobs', count(*) FROM blobs o GROUP BY o.tenant_id, o.project_id
      UNION ALL SELECT o.tenant_id, o.project_id, 'blob_bytes', sum(o.byte_size) FROM blobs o GROUP BY o.tenant_id, o.project_id
      UNION ALL SELECT c.tenant_id, c.project_id, c.status, -c.n FROM counters c) AS b
   GROUP BY b.tenant_id, b.project_id, b.status HAVING sum(b.n) <> 0;
END $$;
CREATE FUNCTION dispatch_effects_stale(p_now bigint, p_opaque boolean) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY UPDATE effects e SET state = CASE WHEN p_opaque THEN 'in_doubt' ELSE 'abandoned' END, finished_at = p_now
    FROM jobs j
   WHERE e.state = 'intended' AND (e.effect_class = 'opaque') = p_opaque
     AND j.tenant_id = e.tenant_id AND j.project_id = e.project_id AND j.job_id = e.job_id
     AND CASE WHEN p_opaque THEN j.lease_owner IS NULL OR j.lease_epoch <> e.epoch
              ELSE j.status NOT IN ('pending', 'processing') END
  RETURNING e.op_key;
END $$;

-- A ledger that was restored on another server: its transactions count from lower, its events must not.
CREATE FUNCTION dispatch_rebase_events() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  newest bigint;
  next bigint := events_horizon();
BEGIN
  SELECT max(last.seq) INTO newest FROM (SELECT DISTINCT c.tenant_id, c.project_id FROM counters c) AS s
   CROSS JOIN LATERAL (SELECT e.seq FROM events e WHERE e.tenant_id = s.tenant_id AND e.project_id = s.project_id
                        ORDER BY e.seq DESC LIMIT 1) AS last;
  IF newest >= next + (1 << 20) AND NOT EXISTS (
      SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()) THEN
    PERFORM setval('events_base', (SELECT last_value FROM events_base) + newest - next + (1 << 20));
  END IF;
END $$;

-- For workers and operators, over all tenants: when there is work again, who was asked to stop, who works, what there is.
CREATE FUNCTION dispatch_work_due(p_types jsonb, p_tenant text, p_project text, p_now bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN least(
    (SELECT min(j.next_attempt_at) FROM jobs j WHERE j.next_attempt_at IS NOT NULL AND p_types ? j.job_type
       AND (p_tenant IS NULL OR (j.tenant_id = p_tenant AND j.project_id = p_project))),
    (SELECT min(j.lease_until) FROM jobs j WHERE j.lease_until IS NOT NULL AND p_types ? j.job_type
       AND (p_tenant IS NULL OR (j.tenant_id = p_tenant AND j.project_id = p_project))),
    (SELECT min(coalesce(l.parked_until, p_now)) FROM lanes l WHERE l.ready = 1 AND p_types ? l.job_type
       AND (p_tenant IS NULL OR (l.tenant_id = p_tenant AND l.project_id = p_project))));
END $$;
CREATE FUNCTION dispatch_stops_wanted(p_owner text) RETURNS SETOF text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT j.job_id FROM jobs j
   WHERE j.lease_until IS NOT NULL AND j.lease_owner = p_owner AND j.cancel_requested_at IS NOT NULL;
END $$;
CREATE FUNCTION dispatch_scopes() RETURNS TABLE (tenant_id text, project_id text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT DISTINCT l.tenant_id, l.project_id FROM lanes l ORDER BY l.tenant_id, l.project_id;
END $$;
CREATE FUNCTION dispatch_workers(p_now bigint) RETURNS TABLE (owner text, leases bigint, until bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT j.lease_owner, count(*), min(j.lease_until) FROM jobs j
   WHERE j.lease_until IS NOT NULL GROUP BY j.lease_owner ORDER BY j.lease_owner LIMIT 10000;
END $$;

-- For /metrics, over all tenants.
CREATE FUNCTION dispatch_counters() RETURNS TABLE (status text, n bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT c.status, CAST(sum(c.n) AS bigint) FROM counters c GROUP BY c.status;
END $$;
CREATE FUNCTION dispatch_oldest_ready() RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN (SELECT min(heads.created_at) FROM (
    SELECT (SELECT j.created_at FROM jobs j WHERE j.lane_id = l.lane_id AND j.ready = 1
             ORDER BY j.priority DESC, j.seq LIMIT 1) AS created_at
      FROM lanes l WHERE l.ready = 1 LIMIT 1000) AS heads);
END $$;
CREATE FUNCTION dispatch_last_success() RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN (SELECT max(newest.created_at) FROM (
    SELECT (SELECT a.created_at FROM artifacts a WHERE a.tenant_id = c.tenant_id AND a.project_id = c.project_id
             ORDER BY a.artifact_id DESC LIMIT 1) AS created_at
      FROM counters c WHERE c.status = 'artifacts') AS newest);
END $$;
-- A lane that was empty got work: whoever waits is woken at the commit. (One NOTIFY per statement, folded per transaction.)
CREATE FUNCTION lanes_opened() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('longshore_jobs', '');
  RETURN NULL;
END $$;
CREATE TRIGGER lanes_opened AFTER UPDATE OF ready ON lanes FOR EACH ROW
  WHEN (NEW.ready = 1 AND OLD.ready = 0) EXECUTE FUNCTION lanes_opened();
CREATE TRIGGER lanes_made AFTER INSERT ON lanes FOR EACH ROW WHEN (NEW.ready = 1) EXECUTE FUNCTION lanes_opened();

-- For the loop that polls the torrent client, over all tenants.
CREATE FUNCTION dispatch_torrents_due(p_now bigint, p_limit bigint)
RETURNS TABLE (tenant_id text, project_id text, job_id text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT t.tenant_id, t.project_id, t.job_id
    FROM torrents t JOIN jobs j ON j.tenant_id = t.tenant_id AND j.project_id = t.project_id AND j.job_id = t.job_id
   WHERE t.synced_at < 9223372036854775807 AND (j.lease_until IS NULL OR j.lease_until <= p_now)
   ORDER BY t.synced_at, t.job_id LIMIT p_limit;
END $$;
CREATE FUNCTION dispatch_torrents_active() RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN (SELECT count(*) FROM torrents WHERE synced_at < 9223372036854775807);
END $$;
CREATE FUNCTION dispatch_torrents_hold(p_now bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  UPDATE torrents SET held_at = p_now WHERE held_at IS NULL AND synced_at < 9223372036854775807;
END $$;
CREATE FUNCTION dispatch_torrents_sharing(p_v1 text, p_v2 text, p_jobs jsonb)
RETURNS TABLE (job_id text, status text, cancel_requested_at bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN QUERY SELECT j.job_id, j.status, j.cancel_requested_at
    FROM torrents t JOIN jobs j ON j.tenant_id = t.tenant_id AND j.project_id = t.project_id AND j.job_id = t.job_id
   WHERE t.infohash_v1 = p_v1 OR t.infohash_v2 = p_v2 OR p_jobs ? t.job_id;
END $$;

-- The dispatcher's functions are the dispatcher's, and for the application only.
DO $$
DECLARE
  name text;
BEGIN
  EXECUTE format('GRANT CREATE ON SCHEMA %I TO longshore_dispatcher', current_schema());
  FOR name IN SELECT p.oid::regprocedure::text FROM pg_proc p
     WHERE p.pronamespace = current_schema()::regnamespace AND p.proname LIKE 'dispatch\_%' LOOP
    EXECUTE format('ALTER FUNCTION %s OWNER TO longshore_dispatcher', name);
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', name);
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO longshore_app', name);
  END LOOP;
  EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM longshore_dispatcher', current_schema());
  BEGIN
    REVOKE longshore_dispatcher FROM CURRENT_USER;  -- its policy is for these functions, not for the owner
  EXCEPTION WHEN insufficient_privilege THEN NULL;  -- somebody else gave it, and must take it back
  END;
END $$;
