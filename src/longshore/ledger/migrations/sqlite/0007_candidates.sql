-- What a job's candidates answered (JSON, domain/transfer/mirrors.py): a job that waits for a mirror's host goes on where it stopped.
ALTER TABLE jobs ADD COLUMN trail TEXT;

-- Since when a host answers nothing at all and how many requests found that; and when its name was found not to exist.
ALTER TABLE hosts ADD COLUMN silent_since INTEGER;
ALTER TABLE hosts ADD COLUMN silences INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN nameless_at INTEGER;
