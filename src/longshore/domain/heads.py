"""The head of an answer, read strictly. What cannot be read one way only is a protocol error, not a guess."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Final

from longshore.domain.model import Validators
from longshore.domain.ranges import ContentRange, parse_content_range, parse_length
from longshore.errors import Reasoned

MAX_RETRY_AFTER_S: Final = 86_400.0
_NO_VALIDATORS: Final = Validators()
_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]{0,4096}"\Z')


@dataclass(slots=True)
class Head:
    """Status and headers of the final answer, and how it was reached. Header names are lower case."""

    status: int
    url: str  # the final one
    headers: dict[str, str]
    validators: Validators = _NO_VALIDATORS
    length: int | None = None  # of this message's body, as declared
    content_range: ContentRange | None = None
    media_type: str | None = None  # lower case, without parameters
    hops: tuple[str, ...] = ()  # the URLs before the final one
    cookies: tuple[str, ...] = field(default=(), repr=False)  # Set-Cookie, as sent
    delimited: bool = True  # the end of the body can be told from a cut

    @property
    def total(self) -> int | None:
        """Length of the whole object, as far as this answer says."""
        if self.status == 206 or self.status == 416:
            return self.content_range.total if self.content_range else None
        return self.length

    @property
    def encoding(self) -> str | None:
        """The content coding, if it is one that changes the bytes."""
        value = self.headers.get("content-encoding", "").strip().lower()
        return value if value not in ("", "identity") else None


def _broken(message: str) -> Reasoned:
    return Reasoned("protocol_error", message)


def split_fields(lines: Sequence[bytes]) -> tuple[str, int, dict[str, str], dict[str, list[str]]]:
    """Give version, status, fields and those that came more than once, of the last head in the lines.

    Informational heads come before it.
    """
    text = b"".join(lines).decode("latin-1")
    if "\r\n\r\n" not in text:
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")  # bare line feeds are allowed
    start = text.rfind("\r\nHTTP/")
    head, end, _trailers = (text[start + 2 :] if start >= 0 else text).partition("\r\n\r\n")
    if not end:
        raise _broken("the answer ended inside its headers")
    rows = head.split("\r\n")  # none is empty: an empty one ends the head
    parts = rows[0].split(" ", 2)
    if len(parts) < 2 or not (parts[1].isascii() and parts[1].isdigit()):
        raise _broken("the status line cannot be read")
    fields: dict[str, str] = {}
    repeated: dict[str, list[str]] = {}
    name = ""
    for row in rows[1:]:
        key, colon, value = row.partition(":")
        if row[0] in " \t":  # a folded line goes on with the field before it
            if name:
                fields[name] += " " + row.strip()
        elif colon:
            name, value = key.lower(), value.strip()
            if name not in fields:
                fields[name] = value
            else:
                repeated.setdefault(name, [fields[name]]).append(value)
                fields[name] += ", " + value
    return parts[0], int(parts[1]), fields, repeated


def parse_head(lines: Sequence[bytes], url: str, hops: tuple[str, ...] = ()) -> Head:
    """Read the collected header lines of an HTTP answer."""
    version, status, fields, repeated = split_fields(lines)
    try:
        length = parse_length(fields["content-length"]) if "content-length" in fields else None
    except ValueError as error:
        raise _broken(f"Content-Length: {error}") from None
    chunked = "transfer-encoding" in fields
    if chunked and length is not None:
        raise _broken("Content-Length and Transfer-Encoding together")
    kind = fields.get("content-type")
    return Head(
        status=status,
        url=url,
        headers=fields,
        validators=_validators(fields, repeated),
        length=length,
        content_range=parse_content_range(fields.get("content-range")),
        media_type=(kind.partition(";")[0].strip().lower() or None) if kind else None,
        hops=hops,
        cookies=tuple(repeated.get("set-cookie", (fields["set-cookie"],))) if "set-cookie" in fields else (),
        delimited=length is not None or chunked or not version.startswith("HTTP/1"),
    )


def _validators(fields: dict[str, str], repeated: dict[str, list[str]]) -> Validators:
    etag, date = fields.get("etag"), fields.get("last-modified")
    if etag is None and date is None:
        return _NO_VALIDATORS
    if repeated:  # two entity tags are none
        etag = None if "etag" in repeated else etag
        date = None if "last-modified" in repeated else date
    return Validators(etag if etag is not None and valid_etag(etag) else None, date)


def valid_etag(value: str) -> bool:
    """Tell whether this is an entity tag: quoted, without quotes or control characters inside."""
    return _ETAG.match(value) is not None


def http_date(value: str | None) -> float | None:
    """Read an HTTP-date as seconds since 1970, or None."""
    if not value:
        return None
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def retry_after_s(value: str | None, *, now: float, date: str | None = None) -> float | None:
    """Read Retry-After in both forms; None when it says nothing usable. The server's own Date is its clock."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), MAX_RETRY_AFTER_S)
    moment = http_date(text)
    if moment is None:
        return None
    return min(max(0.0, moment - (http_date(date) or now)), MAX_RETRY_AFTER_S)
