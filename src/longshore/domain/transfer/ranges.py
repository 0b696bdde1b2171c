"""Byte ranges and other strictly read header fields. What cannot be read exactly is None, never a guess."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAX_LENGTH: Final = (1 << 63) - 1
_NUMBER = r"(\d{1,19})"
_SATISFIED = re.compile(rf"bytes[ \t]+{_NUMBER}-{_NUMBER}/(?:{_NUMBER}|\*)\Z", re.ASCII | re.IGNORECASE)
_UNSATISFIED = re.compile(rf"bytes[ \t]+\*/{_NUMBER}\Z", re.ASCII | re.IGNORECASE)
_DIGITS = re.compile(r"\d{1,19}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class ContentRange:
    """`bytes first-last/total`; of a 416 only the total."""

    first: int | None
    last: int | None
    total: int | None

    @property
    def length(self) -> int | None:
        """How many bytes the range holds."""
        return None if self.first is None or self.last is None else self.last - self.first + 1

    @property
    def whole(self) -> bool:
        """Return whether this is the complete object."""
        return self.first == 0 and self.last is not None and self.total == self.last + 1


def parse_content_range(value: str | None) -> ContentRange | None:
    """Read Content-Range; None for what is absent, malformed, of another unit, or contradicts itself (RFC 9110 14.4)."""
    if value is None:
        return None
    value = value.strip()
    if match := _UNSATISFIED.match(value):
        total = int(match[1])
        return ContentRange(None, None, total) if total <= MAX_LENGTH else None
    if not (match := _SATISFIED.match(value)):
        return None
    first, last = int(match[1]), int(match[2])
    whole = int(match[3]) if match[3] is not None else None
    if last < first or last > MAX_LENGTH or (whole is not None and not last < whole <= MAX_LENGTH):
        return None
    return ContentRange(first, last, whole)


def parse_length(value: str) -> int:
    """Read Content-Length (repetitions joined by commas); equal repetitions are one, anything else raises ValueError."""
    if not _DIGITS.match(value):
        seen = {piece.strip() for piece in value.split(",")}
        if len(seen) > 1:
            raise ValueError("several different lengths")
        value = seen.pop()
        if not _DIGITS.match(value):
            raise ValueError("the length is not a valid number")
    length = int(value)
    if length > MAX_LENGTH:
        raise ValueError("the length is not a valid number")
    return length


def range_header(start: int, end: int | None = None) -> str:
    """Ask from `start` to the end, or up to and including `end`."""
    return f"bytes={start}-" if end is None else f"bytes={start}-{end}"
