"""Options that take a time span: a number of days or hours, or a number with a unit."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import click

from longshore.errors import BadInput

MOST_DAYS: Final = 36_525  # a century; what is longer is a mistake, and does not fit the ledger's times
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)?\Z", re.ASCII)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class TimeRange(click.FloatRange):
    """A number within limits; NaN, which passes every comparison, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the number."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def seconds(text: str) -> float:
    """Parse a time span: 90, 90s, 15m, 12h, 30d, 4w."""
    match = _SPAN.match(text.strip().lower())
    if not match or float(match[1]) <= 0:
        raise BadInput(f"a time span is a number with s, m, h, d or w (30m, 12h, 2d), not {text[:40]!r}")
    span = float(match[1]) * _UNITS[match[2] or "s"]
    if span > MOST_DAYS * 86_400:
        raise BadInput(f"a time span is at most {MOST_DAYS} days, not {text[:40]!r}")
    return span
