"""The limit of the receive rate: one value, or a timetable such as `500k 08:00-18:00, 0 otherwise`.

Entries are read from left to right, and the first that fits the time of day counts. Without one that fits, and for 0, the
rate is unlimited. A span may pass midnight (`22:00-06:00`). k, M and G are powers of 1024, as in curl, wget and aria2.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

DAY: Final = 24 * 60
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?(?:/s)?\Z", re.IGNORECASE)
_SPAN: Final = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})\Z")
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_LEAST: Final = 1024  # bytes per second: below that every transfer would be given up as stalled


class Entry(NamedTuple):
    """A rate and the minutes of the day for which it counts, from `start` to before `end`."""

    bytes_s: float  # 0: no limit
    start: int = 0
    end: int = DAY

    def holds_at(self, minute: int) -> bool:
        """Return whether the entry counts at this minute of the day."""
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


def parse_max_rate(text: str) -> tuple[Entry, ...]:
    """Parse a limit; empty: none. Raise ValueError with what is expected."""
    return tuple(_entry(part.strip()) for part in text.split(",")) if text.strip() else ()


def rate_at(entries: tuple[Entry, ...], minute: int) -> float:
    """Return the bytes per second at this minute of the day; 0: no limit."""
    return next((entry.bytes_s for entry in entries if entry.holds_at(minute)), 0.0)


def _entry(text: str) -> Entry:
    rate, _, when = text.partition(" ")
    when = when.strip().lower()
    if when in ("", "otherwise"):
        return Entry(_bytes_s(rate, text))
    if not (span := _SPAN.match(when)):
        raise _unreadable(text)
    start, end = (int(span[at]) * 60 + int(span[at + 1]) for at in (1, 3))
    if int(span[2]) > 59 or int(span[4]) > 59 or start >= DAY or end > DAY or start == end:
        raise _unreadable(text)
    return Entry(_bytes_s(rate, text), start, end)


def _bytes_s(word: str, text: str) -> float:
    if not (match := _RATE.match(word)):
        raise _unreadable(text)
    rate = float(match[1]) * _FACTORS[match[2].lower()]
    if 0 < rate < _LEAST:
        raise ValueError(f"max_rate is at least 1k (1024 bytes per second), or 0 for no limit, not {text!r}")
    return rate


def _unreadable(text: str) -> ValueError:
    return ValueError(f"max_rate is a rate such as 2M, or a timetable `500k 08:00-18:00, 0 otherwise`, not {text!r}")
