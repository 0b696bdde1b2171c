"""The layout of a local store, and read-only queries that do not need to open the store."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Any, Final

from longshore.errors import NotFound
from longshore.store import blob_names

if TYPE_CHECKING:
    from longshore.domain.scope import Scope

LAYOUT: Final = 1
LAYOUT_FILE: Final = ".layout.json"
LOST_AND_FOUND: Final = "lost+found"  # created by mkfs in the root of a new file system


def wanted_layout(width: int) -> dict[str, int]:
    """Return the contents of the layout file for a shard width."""
    return {"layout": LAYOUT, "shard_width": width}


def found_layout(root: int) -> Any:
    """Read the layout file of an open store directory; return None if it is not valid JSON."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(LAYOUT_FILE, flags, dir_fd=root), "rb") as file:
        try:
            return json.loads(file.read(4096)) if S_ISREG(os.fstat(file.fileno()).st_mode) else None
        except ValueError:
            return None


def nothing_at(root: str) -> str | None:
    """Describe a path at which no store was ever created; return None if one was, or if the path is not readable.

    The mount point of a disk that is not mounted is an empty or missing directory.
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
    """Return whether blobs were ever published below an open directory: manual deletion leaves the directories."""
    with os.scandir(root) as entries:
        return any(_of_a_tenant(entry) for entry in entries)


def _of_a_tenant(entry: os.DirEntry[str]) -> bool:
    ours = not entry.name.startswith(".") and entry.name != LOST_AND_FOUND
    return ours and entry.is_dir(follow_symlinks=False)


def sizes(root: int, scope: Scope, pointers: Sequence[str]) -> list[int | None]:
    """Return the size of each blob below an open directory, or None for a missing one.

    This takes one `stat` per blob, the cheapest call that returns a size. (Reading directories returns names only.) It would
    follow a link in the place of a directory, which no other operation does, so each directory is checked once.
    """
    ours = re.compile(
        re.escape(blob_names.prefix(scope)) + r"(?:([0-9a-f]{1,63})/(?=\1))?+[0-9a-f]{64}(?:\.[a-z0-9]{1,8}){0,2}+"
    ).fullmatch
    found: list[int | None] = []
    real: dict[str, bool] = {}
    for pointer in pointers:
        try:
            # A pointer that does not have the usual form is parsed and validated.
            path = pointer if ours(pointer) else blob_names.parse(scope, pointer).pointer
            directory = path.rpartition("/")[0]
            if directory not in real:
                real[directory] = _is_real(root, directory)
            stat = os.stat(path, dir_fd=root, follow_symlinks=False) if real[directory] else None
        except (FileNotFoundError, NotADirectoryError, NotFound):
            stat = None
        found.append(stat.st_size if stat is not None and S_ISREG(stat.st_mode) else None)
    return found


def _is_real(root: int, directory: str) -> bool:
    """Return whether a path below an open directory consists of directories, not of links to them."""
    names = directory.split("/")
    paths = ("/".join(names[:depth]) for depth in range(1, len(names) + 1))
    return all(S_ISDIR(os.stat(path, dir_fd=root, follow_symlinks=False).st_mode) for path in paths)
