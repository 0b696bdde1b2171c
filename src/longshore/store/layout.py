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
LOST_AND_FOUND: Final = "lost+found"  # a file system's own, in the root of every new one


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


def nothing_at(root: str) -> str | None:
    """Say what is at a place where no store has ever been; None where one was begun, or nobody may look.

    The place of a disk that is not mounted is an empty directory, or none.
    """
    try:
        with os.scandir(root) as entries:
            traces = any(entry.name == LAYOUT_FILE or _of_a_tenant(entry) for entry in entries)
    except FileNotFoundError:
        return "nothing is there"
    except NotADirectoryError:
        return "it is not a directory"
    except OSError:
        return None
    return None if traces else "the directory is empty"


def any_tenant(root: int) -> bool:
    """Tell whether blobs were ever published below an open directory: what is deleted by hand leaves directories."""
    with os.scandir(root) as entries:
        return any(_of_a_tenant(entry) for entry in entries)


def _of_a_tenant(entry: os.DirEntry[str]) -> bool:
    ours = not entry.name.startswith(".") and entry.name != LOST_AND_FOUND
    return ours and entry.is_dir(follow_symlinks=False)


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
