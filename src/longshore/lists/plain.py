"""Lists of plain URLs and nothing else, read in one go: no object per line, and no format to be recognised."""

from __future__ import annotations

import os
import re
from stat import S_ISREG
from typing import Final

from longshore.domain.plain import are_plain

LARGEST: Final = 64 << 20  # what is read whole; a longer list is read as it streams
_COMMENT: Final = re.compile(r"#[\t -~]{0,8192}")  # nothing that anybody would take for the end of a line


def plain_urls(path: str) -> list[str] | None:
    """Give the URLs of a file with one plain URL per line; None for everything else, and whenever there is any doubt.

    Such a list is of the format `urls` whoever looks, and `read_urls` would give the same URLs in the same order.
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
    """Read a plain file whole. Anything else may give its bytes once only: it is not even opened here."""
    try:
        if not S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError):  # the long way says what is wrong
        return None
    return data if len(data) <= LARGEST else None
