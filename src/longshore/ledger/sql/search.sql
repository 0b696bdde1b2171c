-- Search: what a person types to find a job or an artifact. Ids and hashes by index; parts of names among the newest jobs.

-- {job_name} @sqlite --
json_extract(j.request, '$.name')

-- {job_name} @postgres --
CAST(j.request AS jsonb) ->> 'name'

-- jobs_of_text --
-- Jobs with a part in their URL, file name, work, book or source, newest first, among the next `scan` of them.
SELECT {job}
  FROM (SELECT * FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND i.job_id < :edge
         ORDER BY i.job_id DESC LIMIT :scan) AS j
 WHERE lower(j.canonical_url) LIKE :part ESCAPE '~' OR lower(j.url) LIKE :part ESCAPE '~' OR lower(j.work_id) LIKE :part ESCAPE '~'
    OR lower(j.book_id) LIKE :part ESCAPE '~' OR lower(j.source) LIKE :part ESCAPE '~'
    OR (j.request IS NOT NULL AND lower({job_name}) LIKE :part ESCAPE '~')
 ORDER BY j.job_id DESC LIMIT :many

-- jobs_of_text_end --
SELECT min(s.job_id), count(*)
  FROM (SELECT i.job_id FROM jobs AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id AND i.job_id < :edge
         ORDER BY i.job_id DESC LIMIT :scan) AS s

-- artifacts_of_prefix --
-- Artifacts whose hash begins so.
SELECT {artifact} FROM artifacts AS a
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.sha256 >= :low AND a.sha256 < :high
 ORDER BY a.sha256, a.artifact_id LIMIT :many

-- artifacts_of_id --
SELECT {artifact} FROM artifacts AS a
 WHERE a.tenant_id = :tenant_id AND a.project_id = :project_id AND a.artifact_id >= :low AND a.artifact_id < :high
 ORDER BY a.artifact_id LIMIT :many

-- artifacts_of_name --
-- Artifacts with a part in their name, newest first, among the next `scan` of them.
SELECT {artifact}
  FROM (SELECT * FROM artifacts AS i WHERE i.tenant_id = :tenant_id AND i.project_id = :project_id
         ORDER BY i.artifact_id DESC LIMIT :scan) AS a
 WHERE lower(a.name) LIKE :part ESCAPE '~'
 ORDER BY a.artifact_id DESC LIMIT :many

-- reasons_known --
-- The reasons for which jobs of a project failed: the table has a few rows for each reason and host.
SELECT DISTINCT error_code FROM failure_counts WHERE tenant_id = :tenant_id AND project_id = :project_id
 ORDER BY error_code LIMIT :many

-- types_known --
-- The types of a project's jobs, as its lanes have them.
SELECT DISTINCT s.job_type
  FROM (SELECT l.job_type FROM lanes AS l WHERE l.tenant_id = :tenant_id AND l.project_id = :project_id LIMIT :scan) AS s
 ORDER BY s.job_type
