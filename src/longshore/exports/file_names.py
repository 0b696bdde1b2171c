"""Readable file names: from a template, safe on any file system, unique within one export."""

from __future__ import annotations

import re
import unicodedata
from typing import Final
from urllib.parse import unquote, urlsplit

from longshore.errors import BadInput
from longshore.exports.manifest_rows import ManifestRow
from longshore.exports.used_names import UsedNames

FIELDS: Final = ("sha256", "name", "stem", "ext", "host", "work_id", "artifact_id", "job_id", "shard")
_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*\u202a-\u202e\u2066-\u2069]')
_FIELD = re.compile(r"\{(\w+)\}")
_RESERVED = re.compile(r"(?i)^(con|prn|aux|nul|com\d|lpt\d)(\..*)?$")
_LONGEST_BYTES: Final = 200


def safe_name(text: str, *, fallback: str = "file") -> str:
    """Return one path component that cannot leave its directory, is not hidden and has no control characters."""
    text = _UNSAFE.sub("_", unicodedata.normalize("NFC", text)).strip(" .")
    if not text or _RESERVED.match(text):
        text = f"_{text}" if text else fallback
    while len(text.encode()) > _LONGEST_BYTES:
        stem, dot, ext = text.rpartition(".")
        text = f"{stem[:-8]}{dot}{ext}" if dot and len(ext) < 12 and len(stem) > 8 else text[:-8]
    return text


def display_name(row: ManifestRow) -> str:
    """Return the name that a user expects: the job's name, else the URL's last segment, else the hash."""
    if row.name:
        return safe_name(row.name)
    last = unquote(urlsplit(row.url or "").path).rsplit("/", 1)[-1]
    return safe_name(last) if last else str(row.sha256)


class Namer:
    """Build each row's path from a template; add the hash to a duplicate name."""

    def __init__(self, template: str = "{name}") -> None:
        unknown = [name for name in _FIELD.findall(template) if name not in FIELDS]
        if unknown:
            raise BadInput(f"unknown template field {unknown[0]!r}; choose from {', '.join(FIELDS)}")
        if template.startswith("/") or ".." in template.split("/"):
            raise BadInput("the template must not lead outside its directory")
        self._template = template
        self._taken = UsedNames()

    def __call__(self, row: ManifestRow) -> str:
        """Return the relative path of a row."""
        name = display_name(row)
        stem, dot, ext = name.rpartition(".")
        sha256 = row.sha256 or ""
        values = {
            "sha256": sha256,
            "name": name,
            "stem": stem if dot else name,
            "ext": ext if dot else "",
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
        head, dot, ext = path.rpartition(".")
        path = f"{head}-{sha256[:12]}.{ext}" if dot and "/" not in ext else f"{path}-{sha256[:12]}"
        self._taken.owner(path.casefold(), sha256)
        return path
