"""Sizes as a person writes them: `500MB`, `2GiB`, `64k`, `1048576`."""

from __future__ import annotations

import re
from typing import Final

_SIZE: Final = re.compile(r"(\d[\d_]*(?:\.\d+)?)\s*(?:([kmgtp])(i?b)?|b)?\Z", re.IGNORECASE | re.ASCII)
_POWERS: Final = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
SIZE_FORMS: Final = "a whole number of bytes, or one with a unit such as 500MB, 2GiB or 64k"


def parse_size(text: str) -> int:
    """Return a number of bytes; raise `ValueError` if the text is not a size.

    Units as in GNU tools: `kB`, `MB`, `GB` are powers of 1000; `k`, `M`, `G` and `KiB`, `MiB`, `GiB` powers of 1024.
    """
    match = _SIZE.match(text.strip())
    if match is None:
        raise ValueError(f"not a size: {text[:80]!r}")
    number, unit, ending = match.groups()
    step = 1000 if (ending or "").lower() == "b" else 1024
    factor: int = step ** _POWERS[unit.lower()] if unit else 1
    whole, _, fraction = number.replace("_", "").partition(".")
    parts: int = int(whole + fraction) * factor
    if parts % 10 ** len(fraction):
        raise ValueError(f"not a whole number of bytes: {text[:80]!r}")
    return parts // int(10 ** len(fraction))
