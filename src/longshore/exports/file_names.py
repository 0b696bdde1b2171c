"""Readable file names: from a template, safe on any file system, unique within one export."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from longshore.domain.file_names import safe_name, url_name, url_path, with_hash
from longshore.domain.name_template import PLAIN, NamedFile, check_template, expand
from longshore.domain.policy.redaction import safe_field, without_login
from longshore.exports.manifest_rows import ManifestRow
from longshore.exports.used_names import UsedNames


def display_name(row: ManifestRow) -> str:
    """Return the name that a user expects: the job's name, else the URL's last segment, else the hash."""
    if row.name:
        return safe_name(str(safe_field(row.name)))
    url = without_login(row.url) if row.url else row.url
    last = "" if url_path(url).endswith("/") else url_name(url)
    return safe_name(last) if last else str(row.sha256)


class Namer:
    """Build each row's path from a template; add the hash to a duplicate name."""

    def __init__(self, template: str = PLAIN, reserved: Iterable[str] = ()) -> None:
        check_template(template)
        self._template = template
        self._taken = UsedNames()
        for name in reserved:
            self._taken.owner(name, "")

    def __call__(self, row: ManifestRow) -> str:
        """Return the relative path of a row."""
        file = NamedFile(
            name=display_name(row),
            url=without_login(row.url) if row.url else row.url,
            work_id=safe_field(row.work_id),
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
