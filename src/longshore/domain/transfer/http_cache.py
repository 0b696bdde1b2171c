"""HTTP cache semantics (RFC 9111) of one private cache, as pure functions: what may be stored, and what answers a request.

The cache holds metadata only: lists, pages of an API. Each entry belongs to one tenant and one set of credentials, because
both are part of its key; so it is a private cache, `private` may be stored and `s-maxage` does not count. The headers that
select an answer are part of the key as well, so a `Vary` that names them needs no comparison; `Vary: *` is not stored.

An entry answers while it is fresh. A stale one is validated, and answers without that only where the RFC allows it:
offline, or if the server fails within `stale-if-error`, and never against `must-revalidate` or `no-cache`. Where a field
can be read in two ways, the entry counts as stale: then a request decides.

hishel has the same rules as a state machine without I/O. It was not used, because its core is a private module of 2,600
lines over its own request and response types, and brings two more dependencies into the locked runtime.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

from longshore.domain.identity.object_versions import varies_always

HEURISTIC_SHARE: Final = 0.1  # of the age that an object had when it was sent, if the server says nothing
HEURISTIC_MOST_S: Final = 86_400.0
KEPT_HEADERS: Final = (
    "age", "cache-control", "content-type", "date", "etag", "expires", "last-modified", "link", "pragma", "vary",
)  # fmt: skip
_DIRECTIVE: Final = re.compile(r'\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)(?:=(?:"((?:[^"\\]|\\.)*)"|([^,\s"]*)))?\s*(?:,|$)')
_SECONDS: Final = re.compile(r"[0-9]{1,18}\Z")
_STRICT: Final = frozenset({"must-revalidate", "no-cache"})


class Use(Enum):
    """What to do for a request."""

    STORED = "stored"  # the entry answers
    VALIDATE = "validate"  # ask with the entry's validators
    FETCH = "fetch"
    NOTHING = "nothing"  # offline, and no entry may answer


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """The head of a stored answer. Times are seconds since 1970, by the clock of this machine."""

    requested_at: float
    received_at: float
    headers: Mapping[str, str] = field(default_factory=dict)  # of `KEPT_HEADERS`, lower case


def directives(value: str) -> dict[str, str | None] | None:
    """Read a Cache-Control field; None if it cannot be read. Of a repeated directive the first counts."""
    found: dict[str, str | None] = {}
    at = 0
    value = re.sub(r"(?:\s*,\s*)+", ",", value).strip(", ") if '"' not in value else value.strip()
    while at < len(value):
        match = _DIRECTIVE.match(value, at)
        if match is None or match.end() == at:
            return None
        name, quoted, plain = match.groups()
        found.setdefault(name.lower(), quoted if quoted is not None else plain)
        at = match.end()
    return found


def is_storable(status: int, headers: Mapping[str, str]) -> bool:
    """Return whether an answer may be kept, and is of use later."""
    said = _said(headers)
    if status != 200 or "no-store" in said or varies_always(headers.get("vary")):
        return False
    return lifetime_s(headers) > 0 or "etag" in headers or "last-modified" in headers


def lifetime_s(headers: Mapping[str, str]) -> float:
    """Return for how long an answer is fresh, from when the server made it."""
    said = _said(headers)
    if "no-cache" in said:
        return 0.0
    if "max-age" in said:
        return _seconds(said["max-age"]) or 0.0
    date = _date(headers.get("date"))
    if "expires" in headers:
        expires = _date(headers["expires"])  # what is not a date, such as 0, is in the past
        return max(0.0, expires - date) if expires is not None and date is not None else 0.0
    changed = _date(headers.get("last-modified"))
    if changed is None or date is None:
        return 0.0
    return min(HEURISTIC_MOST_S, max(0.0, (date - changed) * HEURISTIC_SHARE))


def age_s(entry: CacheEntry, now: float) -> float:
    """Return how old an entry is; infinitely old if the clock was set back since."""
    if now < entry.received_at or entry.received_at < entry.requested_at:
        return float("inf")
    date = _date(entry.headers.get("date"))
    apparent = max(0.0, entry.received_at - date) if date is not None else 0.0
    told = entry.headers.get("age")
    stated = 0.0 if told is None else _seconds(told)
    if stated is None:
        return float("inf")
    return max(apparent, stated + entry.received_at - entry.requested_at) + now - entry.received_at


def decide(entry: CacheEntry | None, now: float, *, offline: bool = False, refresh: bool = False) -> Use:
    """Decide what answers a request."""
    if entry is None:
        return Use.NOTHING if offline else Use.FETCH
    fresh = age_s(entry, now) < lifetime_s(entry.headers)
    if fresh and (offline or not refresh):
        return Use.STORED
    if offline:
        return Use.NOTHING if _STRICT & _said(entry.headers).keys() else Use.STORED
    return Use.VALIDATE if "etag" in entry.headers or "last-modified" in entry.headers else Use.FETCH


def answers_failure(entry: CacheEntry, now: float) -> bool:
    """Return whether a stale entry may answer because the server could not (`stale-if-error`, RFC 5861)."""
    said = _said(entry.headers)
    allowed = _seconds(said.get("stale-if-error") or "")
    if allowed is None or _STRICT & said.keys():
        return False
    return age_s(entry, now) - lifetime_s(entry.headers) <= allowed


def confirmed(entry: CacheEntry, answer: CacheEntry) -> CacheEntry | None:
    """Return the entry with the fields of a 304; None if the answer is about another version."""
    old, new = entry.headers, answer.headers
    for name in ("etag", "last-modified"):
        if name in old and name in new and _opaque(old[name]) != _opaque(new[name]):
            return None
    kept = {name: value for name, value in old.items() if name != "age"}
    return CacheEntry(answer.requested_at, answer.received_at, kept | dict(new))


def _opaque(tag: str) -> str:
    return tag.removeprefix("W/")


def _said(headers: Mapping[str, str]) -> dict[str, str | None]:
    """Return the directives of an answer; what cannot be read asks for a validation each time."""
    if "cache-control" not in headers:
        return {"no-cache": None} if "no-cache" in headers.get("pragma", "").lower() else {}
    value = headers["cache-control"]
    if (said := directives(value)) is not None:
        return said
    return {"no-cache": None, "no-store": None} if "no-store" in value.lower() else {"no-cache": None}


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and _SECONDS.match(text) else None


def _date(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
