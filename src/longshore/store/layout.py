"""How a local store is laid out, and whether blobs are there: all that it takes to look, without opening the store."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final

from longshore.errors import NotFound
from longshore.store import names

if TYPE_CHECKING:
    from longshore.domain.scope import Scope

LAYOUT: Final = 1
LAYOUT_FILE: Final = ".layout.json"


def wanted_layout(width: int) -> dict[str, int]:
    """Give what the layout file of such a store says."""
    return {"layout": LAYOUT, "shard_width": width}


def found_layout(root: int) -> Any:
    """Read the layout file below an open directory; None for one that says nothing."""
    with os.fdopen(os.open(LAYOUT_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root), "rb") as file:
        try:
            return json.loads(file.read(4096))
        except ValueError:
            return None


def sizes(root: int, scope: Scope, pointers: Sequence[str]) -> list[int | None]:
    """Give the size of each blob below an open directory, or None where there is none.

    One `stat` each: it is the cheapest that tells a size. (Reading the shards' directories tells names only.)
    """
    ours = re.compile(
        re.escape(names.prefix(scope)) + r"(?:([0-9a-f]{1,63})/(?=\1))?+[0-9a-f]{64}(?:\.[a-z0-9]{1,8}){0,2}+"
    ).fullmatch
    found: list[int | None] = []
    for pointer in pointers:
        try:
            # What does not look like one of ours at once is taken apart and judged.
            path = pointer if ours(pointer) else names.parse(scope, pointer).pointer
            stat = os.stat(path, dir_fd=root, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError, NotFound):
            found.append(None)
        else:
            found.append(stat.st_size if S_ISREG(stat.st_mode) else None)
    return found
