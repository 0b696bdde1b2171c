"""Share equal bytes among the projects of one tenant by a hard link.

A blob has one name per project. When a body is published whose bytes another project of the tenant has, its name is
linked to that blob's inode, and the body's own file goes away with the part. The other blob is read and proven first
(ADR 15): a damaged one is left to `verify`, and this project gets bytes of its own. Tenants never share an inode.

Removing, quarantining and replacing a blob work on names, so they never touch the other project's. A tenant with one
project pays nothing; otherwise each body costs one look-up per other project, of `PROJECTS` at most.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from longshore.domain.model import Scope
from longshore.store import blob_names
from longshore.store.api import Staged
from longshore.store.durability import filesystem
from longshore.store.local.publish_link import problem_of

PROJECTS: Final = 32  # other projects that are looked at


class SharedBytes:
    """Finds equal bytes in a tenant's other projects."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._known: dict[str, tuple[int, tuple[str, ...]]] = {}  # by tenant: the directory's time, its projects

    def projects(self, scope: Scope) -> tuple[str, ...]:
        """Return the directories of the tenant's other projects."""
        tenant, own = blob_names.encode(scope.tenant_id), blob_names.encode(scope.project_id)
        try:
            changed = os.stat(tenant, dir_fd=self._root, follow_symlinks=False).st_mtime_ns
        except FileNotFoundError:
            return ()
        known = self._known.get(tenant)
        if known is None or known[0] != changed:
            fd = filesystem.open_directory(tenant, self._root)
            try:
                names = tuple(sorted(name for name in os.listdir(fd) if not name.startswith(".")))
            finally:
                os.close(fd)
            known = self._known[tenant] = (changed, names)
        return tuple(name for name in known[1] if name != own)[:PROJECTS]

    def link(self, item: Staged, shard: str, file: str, directory: int, projects: tuple[str, ...]) -> str | None:
        """Link the name of an item to equal bytes of another project: `hardlink` if that worked, `copy` if such bytes
        exist and cannot be shared, None if there are none. Raise FileExistsError if the name is taken."""
        found = None
        for project in projects:
            path = (blob_names.encode(item.scope.tenant_id), project, *filter(None, (shard,)))
            if not self._is_there((*path, file)):
                continue
            if filesystem.exists(file, directory):  # before the other one is read
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), file)
            found = "copy"
            if self._linked(item, path, file, directory):
                return "hardlink"
        return found

    def _is_there(self, path: tuple[str, ...]) -> bool:
        try:
            return filesystem.exists("/".join(path), self._root)
        except OSError:
            return False

    def _linked(self, item: Staged, path: tuple[str, ...], file: str, directory: int) -> bool:
        try:
            theirs = filesystem.open_path(path, self._root)
        except OSError:
            return False  # a link or a file in the way: `reconcile` looks at those
        try:
            if problem_of(file, theirs, item) is not None:
                return False
            os.link(file, file, src_dir_fd=theirs, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:
            return False
        finally:
            os.close(theirs)
        return True
