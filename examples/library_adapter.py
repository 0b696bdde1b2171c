"""A media library on `depot.torrents`: its own table of shelves follows the downloads, in the same transactions."""

from __future__ import annotations

from typing import Any

import longshore

SHELVES = """CREATE TABLE IF NOT EXISTS shelves (
  tenant_id TEXT NOT NULL, project_id TEXT NOT NULL, book_id TEXT NOT NULL, media_type TEXT NOT NULL,
  job_id TEXT NOT NULL, files INTEGER NOT NULL, PRIMARY KEY (tenant_id, project_id, book_id, media_type),
  FOREIGN KEY (tenant_id, project_id, job_id) REFERENCES jobs (tenant_id, project_id, job_id))"""
SHELVE = """INSERT INTO shelves (tenant_id, project_id, book_id, media_type, job_id, files)
  VALUES (:tenant_id, :project_id, :book_id, :media_type, :job_id, :files)
  ON CONFLICT (tenant_id, project_id, book_id, media_type) DO UPDATE SET job_id = excluded.job_id, files = excluded.files"""


class Library:
    """What the application's routes call."""

    def __init__(self, depot: longshore.Depot) -> None:
        self._torrents = depot.torrents
        depot.torrents.on_completed(self._shelve)

    def _shelve(self, tx: Any, done: Any) -> None:
        row = {"tenant_id": done.tenant_id, "project_id": done.project_id, "job_id": done.job_id}
        book = {"book_id": done.request.book_id, "media_type": done.request.media_type}
        tx.execute(SHELVE, {**row, **book, "files": len(done.results)})

    def request(self, user_id: str, book_id: str, media_type: str, source: str) -> str:
        """Start a download, or return the one that runs; raises `Conflict` for another source, or one that failed."""
        return self._torrents.start(source, user_id=user_id, book_id=book_id, media_type=media_type).job_id

    def cancel(self, job_id: str) -> str:
        return self._torrents.cancel(job_id, with_files=True).status

    def refresh(self) -> list[str]:
        """Follow the client once (every 15 s, or leave it to `longshore serve`); return the jobs that completed."""
        return self._torrents.sync().completed
