"""Readable file names: from a template, safe on any file system, unique within one export."""

from __future__ import annotations

import re
import unicodedata
from typing import Final
from urllib.parse import urlsplit

from longshore.domain.file_names import extension_of, safe_name, split_extension, url_name, url_path, with_hash
from longshore.errors import BadInput
from longshore.exports.manifest_rows import ManifestRow
from longshore.exports.used_names import UsedNames

FIELDS: Final = ("sha256", "name", "stem", "ext", "host", "work_id", "artifact_id", "job_id", "shard")
_FIELD = re.compile(r"\{(\w+)\}")
_LEFT = re.compile(r"\{[^{}]*\}?|\}")  # a brace that does not belong to a field


def display_name(row: ManifestRow) -> str:
    """Return the name that a user expects: the job's name, else the URL's last segment, else the hash."""
    if row.name:
        return safe_name(row.name)
    last = "" if url_path(row.url).endswith("/") else url_name(row.url)
    return safe_name(last) if last else str(row.sha256)


def check_template(template: str) -> None:
    """Raise `BadInput` for a template with an unknown field, a stray brace, or a path that leads outside."""
    for name in _FIELD.findall(template):
        if name not in FIELDS:
            raise BadInput(f"unknown template field {name!r}; choose from {', '.join(FIELDS)}")
    if left := _LEFT.search(_FIELD.sub("", template)):
        raise BadInput(
            f"the template has {left[0]!r}, which is not a field",
            hint=f"fields are written {{name}}: {', '.join(FIELDS)}",
        )
    if template.startswith("/") or ".." in template.split("/"):
        raise BadInput("the template must not lead outside its directory")


class Namer:
    """Build each row's path from a template; add the hash to a duplicate name."""

    def __init__(self, template: str = "{name}") -> None:
        check_template(template)
        self._template = template
        self._taken = UsedNames()

    def __call__(self, row: ManifestRow) -> str:
        """Return the relative path of a row."""
        name = display_name(row)
        sha256 = row.sha256 or ""
        values = {
            "sha256": sha256,
            "name": name,
            "stem": split_extension(name)[0],
            "ext": extension_of(name, row.content_type),
            "host": safe_name(urlsplit(row.url or "").netloc.rsplit("@", 1)[-1], fallback="nowhere"),
            "work_id": safe_name(row.work_id or "", fallback="none"),
            "artifact_id": row.artifact_id or "",
            "job_id": row.job_id,
            "shard": sha256[:2],
        }
        parts = [safe_name(_FIELD.sub(lambda m: values[m[1]], part)) for part in self._template.split("/")]
        return self._unique("/".join(parts), sha256)

    def _unique(self, path: str, sha256: str) -> str:
        key = unicodedata.normalize("NFC", path).casefold()
        if self._taken.owner(key, sha256) == sha256:
            return path
        path = with_hash(path, sha256)
        self._taken.owner(path.casefold(), sha256)
        return path
