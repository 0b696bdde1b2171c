"""Write to stdout: data as text or JSON. Everything else goes to stderr."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

SCHEMA: Final = 1
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Output:
    """Writes lines. In JSON mode each line is one object with `type`, `schema` and `ts`."""

    def __init__(self, *, json: bool) -> None:
        self.json = json

    def record(self, kind: str, facts: Mapping[str, Any], ts: int | None = None, *, flush: bool = True) -> None:
        """Write one JSON line."""
        line = {"type": kind, "schema": SCHEMA, "ts": moment(ts) if ts is not None else now(), **facts}
        sys.stdout.write(json.dumps(line, default=str) + "\n")
        if flush:
            sys.stdout.flush()

    def text(self, line: str = "") -> None:
        """Write a line of text without control characters of foreign text."""
        sys.stdout.write(clean(line) + "\n")

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Write a table as wide as its content; the last column is never padded."""
        cells = [[one_line(str("" if cell is None else cell)) for cell in row] for row in rows]
        widths = [max(len(row[index]) for row in [list(headings), *cells]) for index in range(len(headings))]
        for row in [list(headings), *cells]:
            padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
            sys.stdout.write("  ".join([*padded, row[-1]]).rstrip() + "\n")


def lines_of(kind: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the common fields of a JSON line: its type, its schema and the time."""
    return lambda facts: {"type": kind, "schema": SCHEMA, "ts": now(), **facts}


def say(line: str) -> None:
    """Write a line to stderr."""
    print(clean(line), file=sys.stderr)


def clean(text: str) -> str:
    """Remove terminal control sequences."""
    return _CONTROL.sub("�", text)


def one_line(text: str) -> str:
    """Remove control sequences, line breaks and tabs from a name."""
    return _CONTROL.sub("�", text).replace("\n", "�").replace("\t", "�")


def stdout_is_closed() -> bool:
    """Return whether the program was started without stdout (`>&-`); `main` put /dev/null in its place."""
    return getattr(sys.stdout, "name", None) == os.devnull


def on_terminal() -> bool:
    """Return whether stderr is a terminal that can show a display."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}


def now() -> str:
    """Return the time as RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def moment(micros: int) -> str:
    """Write a time of the ledger as RFC 3339."""
    return (
        datetime.fromtimestamp(micros // 1_000_000, UTC)
        .replace(microsecond=micros % 1_000_000)
        .isoformat(timespec="microseconds")
        .replace("+00:00", "Z")
    )


def short_moment(micros: int) -> str:
    """Write a time of the ledger for a person: to the second, in UTC."""
    return readable(moment(micros))


def readable(stamp: str) -> str:
    """Write an RFC 3339 time as every screen of the program does: to the second, in UTC."""
    return stamp[:19].replace("T", " ") + "Z"


def counted(number: int, noun: str) -> str:
    """Write a number with its noun: `1 job`, `2 jobs`, `3 entries`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def size(nbytes: float) -> str:
    """Write a number of bytes for a person."""
    unit = 0
    while nbytes >= 1024 and unit < len(_UNITS) - 1:
        nbytes, unit = nbytes / 1024, unit + 1
    return f"{nbytes:.0f} {_UNITS[unit]}" if unit == 0 or nbytes >= 100 else f"{nbytes:.1f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Write a time span for a person."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
