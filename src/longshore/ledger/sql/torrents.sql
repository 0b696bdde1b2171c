-- Torrent jobs. A job that the client works on has no lease: every write names the row_version it read.
-- Rows of `torrents` whose synced_at is 9223372036854775807 are over and never polled again.

-- {tracked} --
t.tenant_id, t.project_id, t.job_id, j.status, j.stage, j.row_version, j.user_id, j.book_id, j.media_type, j.source,
j.external_job_id, t.infohash_v1, t.infohash_v2, t.watch, t.held_at, j.cancel_requested_at, j.created_at, j.updated_at,
j.completed_at, j.first_not_found_at, j.failure_reason, j.error_message_safe, j.progress, j.lease_until, t.released_at

-- {tracked_from} --
FROM torrents t JOIN jobs j ON j.tenant_id = t.tenant_id AND j.project_id = t.project_id AND j.job_id = t.job_id

-- torrent_beside (tenant_id, project_id, job_id, retry_of) --
-- Create the row of a torrent job; a retry copies the state of the job that it repeats.
INSERT INTO torrents (tenant_id, project_id, job_id, infohash_v1, infohash_v2, metainfo)
VALUES (:tenant_id, :project_id, :job_id,
  (SELECT b.infohash_v1 FROM torrents b WHERE b.tenant_id = :tenant_id AND b.project_id = :project_id AND b.job_id = :retry_of),
  (SELECT b.infohash_v2 FROM torrents b WHERE b.tenant_id = :tenant_id AND b.project_id = :project_id AND b.job_id = :retry_of),
  (SELECT b.metainfo FROM torrents b WHERE b.tenant_id = :tenant_id AND b.project_id = :project_id AND b.job_id = :retry_of))

-- torrent_identity --
UPDATE torrents SET infohash_v1 = :infohash_v1, infohash_v2 = :infohash_v2, metainfo = :metainfo
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id

-- torrent_active --
-- The active job of this user, book and medium.
SELECT {tracked} {tracked_from}
 WHERE j.tenant_id = :tenant_id AND j.user_id = :user_id AND j.book_id = :book_id AND j.media_type = :media_type
   AND j.job_type = 'torrent' AND (j.status = 'pending' OR j.status = 'processing')

-- plan_active_torrent --
SELECT job_id FROM jobs
 WHERE tenant_id = :tenant_id AND user_id = :user_id AND book_id = :book_id AND media_type = :media_type
   AND job_type = 'torrent' AND (status = 'pending' OR status = 'processing')

-- torrents_due --
-- The next jobs of the rotation, of all tenants: the longest unpolled first. Jobs that are being imported are skipped.
SELECT t.tenant_id, t.project_id, t.job_id {tracked_from}
 WHERE t.synced_at < 9223372036854775807 AND (j.lease_until IS NULL OR j.lease_until <= :now)
 ORDER BY t.synced_at, t.job_id
 LIMIT :limit

-- torrents_due @postgres --
SELECT tenant_id, project_id, job_id FROM dispatch_torrents_due(:now, :limit)

-- torrents_named --
SELECT {tracked} {tracked_from}
 WHERE t.tenant_id = :tenant_id AND t.job_id IN (SELECT value FROM {each job_ids})

-- torrents_active --
-- The number of jobs in the rotation.
SELECT count(*) FROM torrents WHERE synced_at < 9223372036854775807

-- torrents_active @postgres --
SELECT dispatch_torrents_active()

-- torrents_hold --
-- The client does not answer: stop all clocks until the next answer.
UPDATE torrents SET held_at = :now WHERE held_at IS NULL AND synced_at < 9223372036854775807

-- torrents_hold @postgres --
SELECT dispatch_torrents_hold(:now)

-- torrents_sharing --
-- Every job of every tenant that uses the same torrent, or that the torrent's tags name.
SELECT j.job_id, j.status, j.cancel_requested_at {tracked_from}
 WHERE t.infohash_v1 = :infohash_v1 OR t.infohash_v2 = :infohash_v2
UNION
SELECT j.job_id, j.status, j.cancel_requested_at {tracked_from}
 WHERE t.job_id IN (SELECT value FROM {each job_ids})

-- torrents_sharing @postgres --
SELECT job_id, status, cancel_requested_at
  FROM dispatch_torrents_sharing(CAST(:infohash_v1 AS text), CAST(:infohash_v2 AS text), CAST(:job_ids AS jsonb))

-- torrents_of_tenant --
-- Of these jobs, one that is the tenant's own.
SELECT job_id FROM torrents WHERE tenant_id = :tenant_id AND job_id IN (SELECT value FROM {each job_ids}) LIMIT 1

-- torrent_show --
SELECT {tracked} {tracked_from}
 WHERE t.tenant_id = :tenant_id AND t.project_id = :project_id AND t.job_id = :job_id

-- torrents_list --
SELECT {tracked} {tracked_from}
 WHERE t.tenant_id = :tenant_id AND t.project_id = :project_id AND t.job_id > :after
   AND (:status = '' OR j.status = :status)
 ORDER BY t.job_id
 LIMIT :limit

-- torrent_metainfo --
SELECT metainfo FROM torrents WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id

-- torrent_note --
UPDATE jobs SET row_version = row_version + 1, updated_at = :now, status = :status, stage = :stage,
       progress = :progress, bytes_done = :bytes_done, bytes_total = :bytes_total,
       external_job_id = COALESCE(:external_job_id, external_job_id), first_not_found_at = :first_not_found_at
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND row_version = :row_version
   AND lease_owner IS NULL AND (status = 'pending' OR status = 'processing')

-- torrent_note_beside --
UPDATE torrents SET watch = :watch, synced_at = :now, held_at = NULL,
       infohash_v1 = COALESCE(:infohash_v1, infohash_v1), infohash_v2 = COALESCE(:infohash_v2, infohash_v2),
       metainfo = COALESCE(:metainfo, metainfo)
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id

-- torrent_polled (now, tenant_id, project_id, job_id) --
UPDATE torrents SET synced_at = :now
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND synced_at < 9223372036854775807

-- torrent_job --
SELECT {job} FROM jobs j
 WHERE j.tenant_id = :tenant_id AND j.project_id = :project_id AND j.job_id = :job_id AND j.job_type = 'torrent'

-- torrent_fail --
UPDATE jobs SET row_version = row_version + 1, updated_at = :now, status = 'failed', stage = 'failed', failed_at = :now,
       error_code = :reason, failure_reason = :reason, error_message_safe = :message, error_debug_id = :debug_id,
       first_not_found_at = :first_not_found_at
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND row_version = :row_version
   AND lease_owner IS NULL AND (status = 'pending' OR status = 'processing')

-- torrent_retire --
-- The job is over: stop polling it.
UPDATE torrents SET watch = :watch, synced_at = 9223372036854775807, held_at = NULL
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id

-- torrent_released --
-- The client's side of a cancel is done.
UPDATE torrents SET released_at = :now, synced_at = 9223372036854775807
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND released_at IS NULL

-- torrent_lease_expired --
UPDATE jobs SET lease_owner = NULL, lease_until = NULL, slot_host = NULL
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND row_version = :row_version
   AND lease_until <= :now
RETURNING lease_epoch

-- torrent_lease --
-- Lease the import, with a new epoch. The stage does not change until the import ends.
UPDATE jobs SET row_version = row_version + 1, updated_at = :now,
       lease_owner = :owner, lease_until = :until, lease_epoch = lease_epoch + 1, claims = claims + 1
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND row_version = :row_version
   AND lease_owner IS NULL AND cancel_requested_at IS NULL AND (status = 'pending' OR status = 'processing')
RETURNING lease_epoch

-- torrent_begin --
-- A torrent that was finished before any poll saw it downloading; its import has ended, well or not.
UPDATE jobs SET row_version = row_version + 1, updated_at = :now, status = 'processing', stage = 'downloading'
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND lease_epoch = :epoch
   AND lease_owner = :owner AND lease_until > :now AND stage = 'queued'

-- torrent_lease_back --
UPDATE jobs SET row_version = row_version + 1, updated_at = :now, lease_owner = NULL, lease_until = NULL, slot_host = NULL
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id AND lease_epoch = :epoch
   AND lease_owner = :owner

-- torrent_cancel_wanted --
UPDATE jobs SET row_version = row_version + 1, updated_at = :now, cancel_requested_at = COALESCE(cancel_requested_at, :now)
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id
   AND (status = 'pending' OR status = 'processing')

-- torrent_cancel --
UPDATE jobs SET row_version = row_version + 1, updated_at = :now, status = 'canceled', stage = 'canceled',
       lease_owner = NULL, lease_until = NULL, slot_host = NULL, error_code = 'canceled'
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id
   AND (status = 'pending' OR status = 'processing')
RETURNING lease_epoch

-- torrent_watch --
UPDATE torrents SET watch = :watch WHERE tenant_id = :tenant_id AND project_id = :project_id AND job_id = :job_id

-- book_known --
INSERT INTO books (tenant_id, project_id, book_id, updated_at) VALUES (:tenant_id, :project_id, :book_id, :now)
ON CONFLICT (tenant_id, project_id, book_id) DO NOTHING

-- asset_available --
-- The first source of an asset stays its source_url: a later artifact has its own provenance.
INSERT INTO media_assets (tenant_id, project_id, book_id, media_type, status, storage_path, source_url, artifact_id,
                          job_id, updated_at)
VALUES (:tenant_id, :project_id, :book_id, :media_type, 'available', :storage_path, :source_url, :artifact_id,
        :job_id, :now)
ON CONFLICT (tenant_id, project_id, book_id, media_type) DO UPDATE
   SET status = 'available', storage_path = excluded.storage_path, artifact_id = excluded.artifact_id,
       job_id = excluded.job_id, updated_at = excluded.updated_at,
       source_url = COALESCE(media_assets.source_url, excluded.source_url)

-- assets_of --
-- The assets to which these artifacts belong, and whether all files of each are there. One lost chapter is a lost book.
SELECT m.book_id, m.media_type,
       (SELECT count(*) FROM job_artifacts f
          JOIN artifacts a ON a.tenant_id = f.tenant_id AND a.project_id = f.project_id AND a.artifact_id = f.artifact_id
         WHERE f.tenant_id = m.tenant_id AND f.project_id = m.project_id AND f.job_id = m.job_id AND f.role = 'result'
           AND a.availability <> 'available')
  FROM media_assets m
 WHERE m.tenant_id = :tenant_id AND m.project_id = :project_id
   AND m.job_id IN (SELECT l.job_id FROM job_artifacts l
                     WHERE l.tenant_id = :tenant_id AND l.project_id = :project_id AND l.role = 'result'
                       AND l.artifact_id IN (SELECT value FROM {each artifact_ids}))
 ORDER BY m.book_id, m.media_type

-- asset_mark (status, now, tenant_id, project_id, book_id, media_type) --
UPDATE media_assets SET status = :status, updated_at = :now
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND book_id = :book_id AND media_type = :media_type

-- book_assets --
SELECT count(*) FROM media_assets
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND book_id = :book_id AND status = 'available'

-- book_show --
SELECT b.state, m.status, m.storage_path, m.artifact_id, m.job_id
  FROM books b
  LEFT JOIN media_assets m ON m.tenant_id = b.tenant_id AND m.project_id = b.project_id AND m.book_id = b.book_id
   AND m.media_type = :media_type
 WHERE b.tenant_id = :tenant_id AND b.project_id = :project_id AND b.book_id = :book_id

-- book_state --
UPDATE books SET state = :state, updated_at = :now
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND book_id = :book_id

-- books_page --
SELECT b.book_id, b.state, b.updated_at FROM books b
 WHERE b.tenant_id = :tenant_id AND b.project_id = :project_id AND b.book_id > :after
 ORDER BY b.book_id LIMIT :many

-- book_one --
SELECT b.book_id, b.state, b.updated_at FROM books b
 WHERE b.tenant_id = :tenant_id AND b.project_id = :project_id AND b.book_id = :book_id

-- assets_of_books --
SELECT m.book_id, m.media_type, m.status, m.artifact_id, m.job_id, m.updated_at FROM media_assets m
 WHERE m.tenant_id = :tenant_id AND m.project_id = :project_id AND m.book_id IN (SELECT value FROM {each book_ids})
 ORDER BY m.book_id, m.media_type

-- release_failed (tenant_id, project_id, book_id, media_type, release, job_id, reason, message, now) --
INSERT INTO failed_releases (tenant_id, project_id, book_id, media_type, release, job_id, reason, message, failed_at)
VALUES (:tenant_id, :project_id, :book_id, :media_type, :release, :job_id, :reason, :message, :now)
ON CONFLICT (tenant_id, project_id, book_id, media_type, release) DO UPDATE
   SET job_id = excluded.job_id, reason = excluded.reason, message = excluded.message, failed_at = excluded.failed_at

-- release_known --
SELECT f.job_id, f.reason, f.message FROM failed_releases f
 WHERE f.tenant_id = :tenant_id AND f.project_id = :project_id AND f.book_id = :book_id AND f.media_type = :media_type
   AND f.release IN (SELECT value FROM {each releases})
 ORDER BY f.failed_at DESC LIMIT 1

-- release_forgiven (tenant_id, project_id, book_id, media_type, release) --
DELETE FROM failed_releases
 WHERE tenant_id = :tenant_id AND project_id = :project_id AND book_id = :book_id AND media_type = :media_type
   AND release = :release
