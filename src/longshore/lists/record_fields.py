"""Map field names of a list to job fields. A name that looks like an expectation is supported, or its line is rejected.

Names are case-insensitive, `-` equals `_`, and the names of the API and of Longshore's exports (`digests`,
`expected_sha256`) have the same meaning as there. Two values of one field must be equal. Unknown fields are counted and
ignored.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from longshore.domain.identity.requests import DIGEST_LENGTHS
from longshore.errors import BadInput

Record = Mapping[str, Any]
TEXTS: Final = ("work_id", "artifact_id", "sha256", "media_type", "name", "run_id")
NUMBERS: Final = ("size_bytes", "priority")
OTHER_DIGESTS: Final = tuple(name for name in DIGEST_LENGTHS if name != "sha256")
FIELDS: Final = frozenset(
    {
        "url",
        "mirrors",
        "headers",
        "needs_headers",
        "digests",
        "job_type",
        "source_ref",
        *TEXTS,
        *NUMBERS,
        *OTHER_DIGESTS,
    }
)
ALIASES: Final = {
    **{f"expected_{name}": name for name in ("size_bytes", "media_type", "digests", *DIGEST_LENGTHS)},
    **{name.replace("sha", "sha_"): name for name in DIGEST_LENGTHS},
}
# Columns of Longshore's exports that do not describe the request.
_PASSED: Final = frozenset(
    {
        "job_id", "status", "stage", "availability", "content_type", "reason", "message", "attempts", "created_at", "completed_at", "facts",
        "type", "schema", "ts", "host", "etag", "last_modified", "final_url", "tenant_id", "project_id", "http_status",
        "stream_bytes", "elapsed_ms", "avg_write_mibps", "fsync_ms", "resume_decision", "resume_reason",
        "resumed_from_bytes", "dedupe_action", "deduplicated", "revalidated", "unverified_length", "hops", "shard_prefix",
        "quota_decision", "quota_need", "quota_start_free", "quota_reserved", "quota_floor", "quota_tenant_left",
        "adopted", "reuse_of", "why", "retry_after_s", "debug_id",
    }
)  # fmt: skip
_EXPECTATION: Final = re.compile(
    r"sha_?[0-9]|md5|digest|checksum|crc32|blake|(?:^|_)(?:sha|hash|hashes|size)(?:_|$)|(?:hash|size)$"
)
# Names of the URL, the best first: the first one that has a value is used if there is no `url`.
URL_NAMES: Final = (
    "url", "download_url", "pdf_url", "url_for_pdf", "file_url", "full_text_url", "fulltext_url", "content_url", "oa_url",
    "best_oa_location.pdf_url", "primary_location.pdf_url", "open_access.oa_url", "image_url", "media_url", "pdf", "link",
    "href", "uri",
)  # fmt: skip
DOI: Final = "doi"  # becomes https://doi.org/… where a record has no column for a URL
NOT_UNDERSTOOD: Final = "!"
PASSED: Final = "-"
UNKNOWN: Final = ""
_UNDERSTOOD: Final = f"understood are size_bytes, media_type, digests, {', '.join(DIGEST_LENGTHS)}"


def plain_name(name: str) -> str:
    """Return a name as it is compared: in lower case, with underscores."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


@lru_cache(256)
def url_rank(name: str, url_column: str | None) -> int | None:
    """Return how well a field's name fits the URL, the best first; None: not at all."""
    plain = plain_name(name)
    if url_column is not None:
        return 0 if plain == plain_name(url_column) else None
    return URL_NAMES.index(plain) if plain in URL_NAMES else None


def with_url(record: Record, url_column: str | None) -> Record | None:
    """Return the record with the URL under `url`, whatever its name is; None if no field is for a URL.

    The `url` is empty if the fields for a URL have no value.
    """
    ranked = sorted((rank, name) for name in record if (rank := url_rank(name, url_column)) is not None)
    if not ranked:
        return None
    chosen = next(
        (name for _, name in ranked if isinstance(value := record[name], str) and value.strip()), ranked[0][1]
    )
    others = {name: value for name, value in record.items() if name != chosen and field_of(name) != "url"}
    return {"url": record[chosen], **others}


@lru_cache(4096)
def field_of(name: str) -> str:
    """Return the field for a name, or one of the markers above."""
    plain = plain_name(name)
    field = ALIASES.get(plain, plain)
    if field in FIELDS:
        return field
    if plain in _PASSED:
        return PASSED
    return NOT_UNDERSTOOD if _EXPECTATION.search(plain) else UNKNOWN


def fields_of(record: Record, unknown: Counter[str] | None = None) -> dict[str, Any]:
    """Return the fields of a record that have a value; raise `BadInput` for an unsupported expectation."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        field = field_of(name)
        if field == UNKNOWN:
            if unknown is not None:
                unknown[name] += 1
        elif value is None or value == "" or field == PASSED:
            continue
        elif field == NOT_UNDERSTOOD:
            raise BadInput(f"the field {name!r:.80} is not understood, and looks like an expectation; {_UNDERSTOOD}")
        elif field == "digests":
            for algorithm, digest in _digests(name, value).items():
                _put(found, f"{name}.{algorithm}", algorithm.lower().replace("-", ""), digest)
        else:
            _put(found, name, field, value)
    _check_headers(found)
    return found


def _put(found: dict[str, Any], name: str, field: str, value: Any) -> None:
    before = found.setdefault(field, value)
    if before is not value and str(before).strip().lower() != str(value).strip().lower():
        raise BadInput(f"the field {name!r:.80} contradicts another one: {before!r:.80} and {value!r:.80}")


def _digests(name: str, value: Any) -> dict[str, str]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, Mapping) or not all(isinstance(one, str) for one in value.values()):
        raise BadInput(f'{name} must be an object: {{"md5": "…"}}')
    if strange := [one for one in value if one.lower().replace("-", "") not in DIGEST_LENGTHS]:
        raise BadInput(f"digests are {', '.join(sorted(DIGEST_LENGTHS))}, not {min(strange)!r:.80}")
    return dict(value)


def _check_headers(found: dict[str, Any]) -> None:
    """Reject a line of a Longshore export whose job had headers: their values are secrets and are not exported."""
    needs = found.pop("needs_headers", False)
    if not (needs is False or str(needs).strip().lower() in ("false", "0")) and not found.get("headers"):
        raise BadInput(
            "its job had headers, which are not exported: add them as `headers`, or set needs_headers to false"
        )


def check_heading(names: list[str]) -> None:
    """Reject a header with a duplicate column that is supported or looks like an expectation."""
    counts = Counter(name.strip().lower() for name in names)
    if twice := [name for name, count in counts.items() if count > 1 and field_of(name) not in (UNKNOWN, PASSED)]:
        raise BadInput(f"the column {min(twice)!r:.80} occurs twice")


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dict from JSON pairs; raise `BadInput` for a duplicate key."""
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = min(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise BadInput(f"the key {twice!r:.80} is given twice")
    return made
