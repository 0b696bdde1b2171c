"""Fast path for lists of plain URLs: read the whole file, without an object per line or format detection."""

from __future__ import annotations

import os
import re
from stat import S_ISREG
from typing import Final

from longshore.domain.identity.plain_urls import are_plain

LARGEST: Final = 64 << 20  # largest file that is read at once; a longer list is streamed
_COMMENT: Final = re.compile(r"#[\t -~]{0,8192}")  # without characters that some readers treat as line ends


def plain_urls(path: str) -> list[str] | None:
    """Return the URLs of a file with one plain URL per line; return None for every other file and in doubt.

    Format detection would always return `urls` for such a file, and `read_urls` the same URLs in the same order.
    """
    data = _content(path)
    if data is None or not data.isascii():
        return None
    lines = data.decode("ascii").split("\n")
    urls = [line for line in lines if line and line[0] != "#"]
    if b"#" in data and not all(_COMMENT.fullmatch(line) for line in lines if line and line[0] == "#"):
        return None
    return urls if are_plain(urls) else None


def _content(path: str) -> bytes | None:
    """Read a whole regular file. Other files are not opened, because their bytes may be readable only once."""
    try:
        if not S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError):  # the regular reader reports the error
        return None
    return data if len(data) <= LARGEST else None
