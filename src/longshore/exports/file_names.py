"""Readable file names: from a template, safe on any file system, unique within one export."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from longshore.domain.file_names import safe_name, url_name, url_path, with_hash
from longshore.domain.name_template import PLAIN, NamedFile, check_template, expand
from longshore.domain.policy.redaction import safe_field, without_login
from longshore.exports.manifest_rows import ManifestRow, Rows
from longshore.exports.used_names import UsedNames

FOLDER: Final = "/"  # owner of a name that is a directory's


def display_name(row: ManifestRow) -> str:
    """Return the name that a user expects: the job's name, else the URL's last segment, else the hash."""
    if row.name:
        return safe_name(str(safe_field(row.name)))
    url = without_login(row.url) if row.url else row.url
    last = "" if url_path(url).endswith("/") else url_name(url)
    return safe_name(last) if last else str(row.sha256)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a file of a torrent belongs: its book, and its path inside the torrent."""

    book_id: str | None
    media_type: str | None
    path: str | None = None


Origins = Callable[[ManifestRow], Origin | None]


def with_file_names(rows: Rows) -> Rows:
    """Name each stored result as `export tree` and SHA256SUMS do, so that the manifest maps URLs to files."""
    namer = Namer()
    for row in rows:
        yield replace(row, name=namer(row)) if row.sha256 and row.availability == "available" else row


class Namer:
    """Build each row's path from a template; add the hash to a duplicate name.

    Without a template, the files of a torrent keep their folders.
    """

    def __init__(self, template: str = PLAIN, origins: Origins = lambda _: None, reserved: Iterable[str] = ()) -> None:
        check_template(template)
        self._template, self._origins = template, origins
        self._taken = UsedNames()
        for name in reserved:
            self._taken.owner(name, "")

    def __call__(self, row: ManifestRow) -> str:
        """Return the relative path of a row."""
        origin = self._origins(row)
        file = NamedFile(
            name=display_name(row),
            url=without_login(row.url) if row.url else row.url,
            work_id=safe_field(row.work_id),
            sha256=row.sha256 or "",
            content_type=row.content_type,
            artifact_id=row.artifact_id or "",
            job_id=row.job_id,
            book_id=origin.book_id if origin else None,
            media_type=origin.media_type if origin else None,
        )
        if self._template == PLAIN and origin is not None and "/" in (origin.path or ""):
            return self._in_folder(str(origin.path), row)
        return self._unique(expand(self._template, file), file.sha256)

    def _in_folder(self, path: str, row: ManifestRow) -> str:
        """Return a path with its folders. A folder whose name a file has gets the end of the job's id."""
        *folders, name = (safe_name(part) for part in path.split("/"))
        for depth in range(1, len(folders) + 1):
            key = unicodedata.normalize("NFC", "/".join(folders[:depth])).casefold()
            if self._taken.owner(key, FOLDER) != FOLDER:
                folders[depth - 1] = f"{folders[depth - 1]}-{row.job_id[-8:]}"
                self._taken.owner("/".join(folders[:depth]).casefold(), FOLDER)
        return self._unique("/".join((*folders, name)), row.sha256 or "")

    def _unique(self, path: str, sha256: str) -> str:
        key = unicodedata.normalize("NFC", path).casefold()
        if self._taken.owner(key, sha256) == sha256:
            return path
        path = with_hash(path, sha256)
        self._taken.owner(path.casefold(), sha256)
        return path
