"""The head of an answer, read strictly. What cannot be read one way only is a protocol error, not a guess.

libcurl hands over one header line per call, so the lines are its own: a line feed ends one, with or without a carriage
return, and folded lines arrive joined. A head is the lines up to an empty one. It begins with a status line, and only a head
that is informational (or a proxy's answer to CONNECT) is followed by another; whatever comes after the final head is its
trailer. A line that looks like a status line anywhere else is not one.

Header values are bytes on the wire. They are kept as text of one character per byte (Latin-1), so that a validator, a cookie
or a redirect's target can be sent back as exactly the bytes that came.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final

from longshore.domain.model import Validators
from longshore.domain.transfer.ranges import ContentRange, parse_content_range, parse_length
from longshore.errors import Reasoned

MAX_RETRY_AFTER_S: Final = 86_400.0
_NO_VALIDATORS: Final = Validators()
_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]{0,4096}"\Z')
_DATE = re.compile(r"[ -~]{1,128}\Z")  # what may be sent back as a date
_STATUS = re.compile(rb"HTTP/([0-9](?:\.[0-9])?) ([1-9][0-9]{2})(?: [^\0\r\n]*)?\r?\n\Z")
_FIELDS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]++:[^\0\r\n]*+\r?+\n)*+\Z")
_SPACE: Final = " \t\r"  # and no other: str.strip would take bytes that mean something to a server


@dataclass(slots=True)
class Decoding:
    """What was received of a body that is stored decoded."""

    coding: str
    encoded_bytes: int = 0
    encoded_sha256: str = ""  # at the end

    def facts(self) -> dict[str, Any]:
        """Return what is recorded of it."""
        return {
            "content_encoding": self.coding,
            "encoded_bytes": self.encoded_bytes,
            "encoded_sha256": self.encoded_sha256,
        }


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
    decoding: Decoding | None = None  # the body is decoded on its way

    @property
    def total(self) -> int | None:
        """Length of the whole object, as far as this answer says."""
        if self.status == 206 or self.status == 416 or self.length is None:
            return self.content_range.total if self.content_range else None
        return self.length

    @property
    def encoding(self) -> str | None:
        """The content coding, if it is one that changes the bytes."""
        if "content-encoding" not in self.headers:
            return None
        value = self.headers["content-encoding"].lower()
        return value if any(coding.strip() not in ("", "identity") for coding in value.split(",")) else None


def _broken(message: str) -> Reasoned:
    return Reasoned("protocol_error", message)


def split_fields(
    lines: Sequence[bytes], *, tunnel: bool = False
) -> tuple[str, int, dict[str, str], dict[str, list[str]]]:
    """Return version, status, fields and the repeated fields of the final head in the lines.

    With `tunnel`, a proxy may have answered CONNECT before it.
    """
    version, status, rows = _final_head(lines, tunnel=tunnel)
    block = b"".join(rows)
    if not _FIELDS.match(block):
        raise _broken("a header line cannot be read")
    fields: dict[str, str] = {}
    repeated: dict[str, list[str]] = {}
    for row in block.decode("latin-1").split("\n")[:-1]:
        key, _, value = row.partition(":")
        name, value = key.lower(), value.strip(_SPACE)
        if name not in fields:
            fields[name] = value
        else:
            repeated.setdefault(name, [fields[name]]).append(value)
            fields[name] += ", " + value
    return version, status, fields, repeated


def _final_head(lines: Sequence[bytes], *, tunnel: bool) -> tuple[str, int, Sequence[bytes]]:
    """Return version, status and field lines of the first head that is neither informational nor a tunnel's."""
    start = 0
    while True:
        end = start
        while end < len(lines) and lines[end] not in (b"\r\n", b"\n"):
            end += 1
        if end >= len(lines):
            raise _broken("the answer ended inside its headers")
        match = _STATUS.match(lines[start]) if end > start else None
        if match is None:
            raise _broken("the status line cannot be read")
        version, status = match[1].decode(), int(match[2])
        more = end + 1 < len(lines) and _STATUS.match(lines[end + 1]) is not None
        informational = 100 <= status < 200 and status != 101
        if not informational and not (tunnel and more and 200 <= status < 300):
            return version, status, lines[start + 1 : end]
        start = end + 1


def parse_head(lines: Sequence[bytes], url: str, hops: tuple[str, ...] = (), *, tunnel: bool = False) -> Head:
    """Read the collected header lines of an HTTP answer."""
    version, status, fields, repeated = split_fields(lines, tunnel=tunnel)
    try:
        length = parse_length(fields["content-length"]) if "content-length" in fields else None
    except ValueError as error:
        raise _broken(f"Content-Length: {error}") from None
    chunked = "transfer-encoding" in fields and _is_chunked(fields["transfer-encoding"])
    if "transfer-encoding" in fields and length is not None:
        raise _broken("Content-Length and Transfer-Encoding together")
    if "location" in repeated:
        raise _broken("several Locations")
    kind, span = fields.get("content-type"), parse_content_range(fields.get("content-range"))
    if "content-digest" in fields and (status == 200 or (status == 206 and span is not None and span.whole)):
        of_the_object = (fields.get("repr-digest"), fields.pop("content-digest"))  # its content is the whole object
        fields["repr-digest"] = ", ".join(filter(None, of_the_object))
    return Head(
        status=status,
        url=url,
        headers=fields,
        validators=_validators(fields, repeated),
        length=length,
        content_range=span,
        media_type=(kind.partition(";")[0].strip().lower() or None) if kind else None,
        hops=hops,
        cookies=tuple(repeated.get("set-cookie", (fields["set-cookie"],))) if "set-cookie" in fields else (),
        delimited=_is_delimited(version, status, length, span, chunked=chunked),
    )


def part_fault(head: Head, *, ranged: bool) -> str | None:
    """Return why the content of a 200 or 206 is not what was asked for, or None.

    Content-Range belongs to 206. A 200 that has one is a part under the wrong status (a script that forgets to set it), unless
    it names the whole object.
    """
    span = head.content_range
    if head.status == 206:
        if head.media_type == "multipart/byteranges":
            return "several ranges came, one was asked for"
        if not ranged and (span is None or not span.whole):
            return "a part came although the whole was asked for"
        return None
    whole = span is not None and span.whole and head.length in (None, span.length)
    if "content-range" in head.headers and not whole:
        return "the status is that of a whole object, Content-Range says that it is a part"
    return None


def _is_chunked(value: str) -> bool:
    """Return whether the last chunk marks the end; a coding that we did not ask for would leave its bytes encoded."""
    coding = value.lower()
    if coding not in ("chunked", "identity"):
        raise _broken("a Transfer-Encoding that was not asked for")
    return coding == "chunked"


def _is_delimited(version: str, status: int, length: int | None, span: ContentRange | None, *, chunked: bool) -> bool:
    """Return whether a truncated body can be detected.

    A declared length, a range of known length and a last chunk make that possible. HTTP/2 and HTTP/3 mark the end, too,
    but libcurl reports a stream that was reset with NO_ERROR as if it had ended. HTTP/1.0 has no chunked encoding.
    """
    if length is not None or (status == 206 and span is not None and span.length is not None):
        return True
    return chunked and version != "1.0"


def _validators(fields: dict[str, str], repeated: dict[str, list[str]]) -> Validators:
    etag, date = fields.get("etag"), fields.get("last-modified")
    if etag is None and date is None:
        return _NO_VALIDATORS
    if repeated:  # two entity tags are none
        etag = None if "etag" in repeated else etag
        date = None if "last-modified" in repeated else date
    return Validators(
        etag if etag is not None and valid_etag(etag) else None,
        date if date is not None and _DATE.match(date) else None,  # what cannot be sent back is not a validator
    )


def valid_etag(value: str) -> bool:
    """Return whether this is an entity tag: quoted, without quotes or control characters inside."""
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
