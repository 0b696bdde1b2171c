"""Render values as HTML: the Jinja2 environment and its filters. Everything is escaped; nothing is marked safe."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from longshore.domain.model import SECOND, Micros

HERE: Final = Path(__file__).parent
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEPS: Final = ((60, "s"), (60, "min"), (24, "h"), (365, "d"))


def stamp(at: Micros | None) -> str | None:
    """Format a time as RFC 3339 in UTC."""
    if at is None:
        return None
    # Integers all the way: a float would round the microseconds.
    whole, rest = divmod(at, SECOND)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}Z"


def human_size(size_bytes: float) -> str:
    """Format a size."""
    unit, value = 0, float(size_bytes)
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_UNITS[unit]}"


def human_span(seconds: float) -> str:
    """Format a duration."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "< 1 ms"
    value = seconds
    for size, unit in _STEPS:
        if value < size:
            return f"{value:.1f} {unit}" if unit == "s" and value < 10 else f"{value:.0f} {unit}"
        value /= size
    return f"{value:.0f} y"


def ago(at: str, now: datetime | None = None) -> str:
    """Format a time relative to now."""
    seconds = ((now or datetime.now(UTC)) - datetime.fromisoformat(at)).total_seconds()
    return f"{human_span(seconds)} ago" if seconds >= 0 else f"in {human_span(-seconds)}"


def left(seconds: float) -> str:
    """Format how long something will still take."""
    return "a moment" if seconds < 1 else human_span(seconds)


def worker(owner: str) -> str:
    """Return a worker as its machine and process, without what makes its name unique."""
    machine, *unique = owner.rsplit(".", 3)
    return f"{machine[:20]} {unique[1]}" if len(unique) == 3 else owner[:30]


def query(fields: Mapping[str, Any], **changes: Any) -> str:
    """Format a filter as a query string, with some fields changed; empty for an empty filter."""
    kept = {k: v for k, v in ({**fields, **changes}).items() if v not in (None, "")}
    return "?" + urlencode(kept) if kept else ""


def many(n: int, one: str) -> str:
    """Format a number with its noun."""
    return f"{n:,} {one}{'' if n == 1 else 's'}"


def short(identifier: str) -> str:
    """Shorten an id to its distinctive part."""
    return identifier if len(identifier) <= 20 else identifier[-12:]


def titled(job: Mapping[str, Any]) -> str:
    """Return a title for a job: its file name, its URL, or the name of the torrent or book."""
    source = str(job["source"] or "")
    magnet = parse_qs(source.partition("?")[2]).get("dn", [""])[0] if source.startswith("magnet:") else source
    book = f"{job['book_id']} ({job['media_type']})" if job["book_id"] else ""
    return str(job["name"] or job["url"] or magnet or book or f"{job['job_type']} {short(job['job_id'])}")


def facts_of(detail: Mapping[str, Any]) -> str:
    """Format the facts of an audit log entry, without redundant and internal ones."""
    left_out = ("act", "request_id", "status", "chosen", "token_id")
    shown = {**{k: v for k, v in detail.items() if k not in left_out}, **detail.get("filter", {})}
    shown.pop("filter", None)
    return ", ".join(f"{k}={','.join(map(str, v)) if isinstance(v, list) else v}" for k, v in shown.items() if v != "")


def environment() -> Environment:
    """Return the environment of all templates."""
    env = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    env.filters.update(size=human_size, took=human_span, ago=ago, query=query, short=short, titled=titled)
    env.filters.update(facts_of=facts_of, many=many, left=left, worker=worker)
    return env
