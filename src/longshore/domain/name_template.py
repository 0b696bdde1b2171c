"""Paths from a template such as `{host}/{name}`: what `get --template` and `export tree --template` share.

Each part between slashes becomes one safe component, so values from servers and lists cannot add a directory or leave
the target. All paths of one template have the same depth: none is a directory of another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from longshore.domain.file_names import extension_of, safe_name, split_extension
from longshore.errors import BadInput

PLAIN: Final = "{name}"
FIELDS: Final = (
    "sha256",
    "name",
    "stem",
    "ext",
    "host",
    "work_id",
    "artifact_id",
    "job_id",
    "shard",
    "book_id",
    "media_type",
)
_DISTINCT: Final = frozenset({"sha256", "artifact_id", "job_id"})  # no two files with different bytes share a value
_FIELD: Final = re.compile(r"\{(\w+)\}")
_LEFT: Final = re.compile(r"\{[^{}]*\}?|\}")  # a brace that does not belong to a field


@dataclass(frozen=True, slots=True)
class NamedFile:
    """The facts of one file that a template can name."""

    name: str  # what the file is called without a template
    url: str | None
    work_id: str | None
    sha256: str = ""
    content_type: str | None = None
    artifact_id: str = ""
    job_id: str = ""
    book_id: str | None = None
    media_type: str | None = None


def check_template(template: str) -> None:
    """Raise `BadInput` for a template with an unknown field, a stray brace, an empty part, or a path that leads outside."""
    for name in _FIELD.findall(template):
        if name not in FIELDS:
            raise BadInput(f"unknown template field {name!r}; choose from {', '.join(FIELDS)}")
    if left := _LEFT.search(_FIELD.sub("", template)):
        raise BadInput(
            f"the template has {left[0]!r}, which is not a field",
            hint=f"fields are written {{name}}: {', '.join(FIELDS)}",
        )
    parts = template.split("/")
    if template.startswith("/") or ".." in parts:
        raise BadInput("the template must not lead outside its directory")
    if not all(part.strip(" .") for part in parts):
        raise BadInput(
            f"the template {template!r} has a part without a name", hint="write it like {host}/{name}, without // or /."
        )


def expand(template: str, file: NamedFile) -> str:
    """Return the relative path of one file."""
    values = {
        "sha256": file.sha256,
        "name": file.name,
        "stem": split_extension(file.name)[0],
        "ext": extension_of(file.name, file.content_type),
        "host": safe_name(_host(file.url), fallback="nowhere"),
        "work_id": safe_name(file.work_id or "", fallback="none"),
        "artifact_id": file.artifact_id,
        "job_id": file.job_id,
        "shard": file.sha256[:2],
        "book_id": safe_name(file.book_id or "", fallback="none"),
        "media_type": safe_name(file.media_type or "", fallback="none"),
    }
    return "/".join(safe_name(_FIELD.sub(lambda m: values[m[1]], part)) for part in template.split("/"))


def expected_path(template: str, file: NamedFile) -> str | None:
    """Return what is known of a path before the file is fetched, to find files that want the same path.

    The extension counts as unknown, as do hash and ids. None: the template keeps files with different bytes apart.
    """
    if _DISTINCT.intersection(_FIELD.findall(template)):
        return None
    known = NamedFile(file.name, file.url, file.work_id)
    return expand(template.replace("{ext}", ""), known).casefold()


def _host(url: str | None) -> str:
    try:
        return urlsplit(url or "").netloc.rpartition("@")[2]
    except ValueError:  # e.g. an unclosed bracket
        return ""
