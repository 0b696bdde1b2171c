"""Readable file names: from a template, safe on any file system, unique within one export."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

from longshore.domain.file_names import safe_name, url_name, url_path, with_hash
from longshore.domain.name_template import PLAIN, NamedFile, check_template, expand
from longshore.exports.manifest_rows import ManifestRow, Rows
from longshore.exports.used_names import UsedNames


def display_name(row: ManifestRow) -> str:
    """Return the name that a user expects: the job's name, else the URL's last segment, else the hash."""
    if row.name:
        return safe_name(row.name)
    last = "" if url_path(row.url).endswith("/") else url_name(row.url)
    return safe_name(last) if last else str(row.sha256)


def with_file_names(rows: Rows) -> Rows:
    """Name each stored result as `export tree` and SHA256SUMS do, so that the manifest maps URLs to files."""
    namer = Namer()
    for row in rows:
        yield replace(row, name=namer(row)) if row.sha256 and row.availability == "available" else row


class Namer:
    """Build each row's path from a template; add the hash to a duplicate name."""

    def __init__(self, template: str = PLAIN) -> None:
        check_template(template)
        self._template = template
        self._taken = UsedNames()

    def __call__(self, row: ManifestRow) -> str:
        """Return the relative path of a row."""
        file = NamedFile(
            name=display_name(row),
            url=row.url,
            work_id=row.work_id,
            sha256=row.sha256 or "",
            content_type=row.content_type,
            artifact_id=row.artifact_id or "",
            job_id=row.job_id,
        )
        return self._unique(expand(self._template, file), file.sha256)

    def _unique(self, path: str, sha256: str) -> str:
        key = unicodedata.normalize("NFC", path).casefold()
        if self._taken.owner(key, sha256) == sha256:
            return path
        path = with_hash(path, sha256)
        self._taken.owner(path.casefold(), sha256)
        return path
