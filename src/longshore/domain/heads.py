"""The head of an answer, read strictly. What cannot be read one way only is a protocol error, not a guess."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Final

from longshore.domain.model import Validators
from longshore.domain.ranges import ContentRange, parse_content_range, parse_length
from longshore.errors import Reasoned

MAX_RETRY_AFTER_S: Final = 86_400.0
_NO_VALIDATORS: Final = Validators()


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


def split_fields(lines: Sequence[bytes]) -> tuple[str, int, dict[str, list[str]]]:
    """Give version, status and fields of the last head in the lines: informational heads come before it."""
    text = b"".join(lines).decode("latin-1")
    start = text.rfind("\r\nHTTP/")
    rows = (text[start + 2 :] if start >= 0 else text).split("\r\n")
    parts = rows[0].split(" ", 2)
    if len(parts) < 2 or not (parts[1].isascii() and parts[1].isdigit()):
        raise _broken("the status line cannot be read")
    fields: dict[str, list[str]] = {}
    name = ""
    for row in rows[1:]:
        if row[:1] in (" ", "\t") and name:
            fields[name][-1] += " " + row.strip()
            continue
        name, colon, value = row.partition(":")
        if colon:
            name = name.lower()
            if name in fields:
                fields[name].append(value.strip())
            else:
                fields[name] = [value.strip()]
    return parts[0], int(parts[1]), fields


def parse_head(lines: Sequence[bytes], url: str, hops: tuple[str, ...] = ()) -> Head:
    """Read the collected header lines of an HTTP answer."""
    version, status, fields = split_fields(lines)
    lengths = fields.get("content-length")
    try:
        length = parse_length(lengths) if lengths else None
    except ValueError as error:
        raise _broken(f"Content-Length: {error}") from None
    if "transfer-encoding" in fields:
        if lengths:
            raise _broken("Content-Length and Transfer-Encoding together")
        length = None
    ranges = fields.get("content-range", ())
    kind = fields["content-type"][-1] if "content-type" in fields else None
    return Head(
        status=status,
        url=url,
        headers={name: values[0] if len(values) == 1 else ", ".join(values) for name, values in fields.items()},
        validators=_validators(fields),
        length=length,
        content_range=parse_content_range(ranges[0]) if len(ranges) == 1 else None,
        media_type=(kind.partition(";")[0].strip().lower() or None) if kind else None,
        hops=hops,
        cookies=tuple(fields.get("set-cookie", ())),
        delimited=length is not None or not version.startswith("HTTP/1") or "transfer-encoding" in fields,
    )


def _validators(fields: dict[str, list[str]]) -> Validators:
    etags, dates = fields.get("etag", ()), fields.get("last-modified", ())
    if not etags and not dates:
        return _NO_VALIDATORS
    etag = etags[0] if len(etags) == 1 else None  # two entity tags are none
    return Validators(
        etag=etag if etag and valid_etag(etag) else None, last_modified=dates[0] if len(dates) == 1 else None
    )


def valid_etag(value: str) -> bool:
    """Tell whether this is an entity tag: quoted, without quotes or control characters inside."""
    opaque = value.removeprefix("W/")
    if len(opaque) < 2 or opaque[0] != '"' or opaque[-1] != '"' or len(opaque) > 4096:
        return False
    return not any(character == '"' or character < "!" or character == "\x7f" for character in opaque[1:-1])


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
