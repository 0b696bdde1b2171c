"""Notes beside the blobs that record the scope of a hashed directory name, which cannot be decoded."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable

from longshore.domain.model import Scope
from longshore.store import blob_names
from longshore.store.durability import filesystem
from longshore.store.staging.parts import Part

NOTE = ".scope.json"


def write_note(scope: Scope, project: int) -> None:
    """Record the scope of a hashed name beside it; other names do not need a note."""
    if not any(map(blob_names.is_hashed, map(blob_names.encode, scope))):
        return
    with contextlib.suppress(FileExistsError):
        note = os.open(NOTE, filesystem.CREATE, 0o600, dir_fd=project)
        try:
            filesystem.write_all(note, json.dumps(list(scope)).encode())
            os.fsync(note)
        finally:
            os.close(note)


def read_note(path: tuple[str, ...], project: int) -> Scope:
    """Return the scope that a tenant's and a project's directory stand for."""
    if any(map(blob_names.is_hashed, path)):
        with contextlib.suppress(OSError, ValueError):
            with filesystem.open_regular(NOTE, project) as file:
                return Scope(*json.loads(file.read(1 << 20)))
    return Scope(blob_names.decode(path[0]), blob_names.decode(path[1]))


class ScopeNotes:
    """Notes kept as objects."""

    def __init__(
        self,
        put: Callable[[str, bytes | Part, str], bool],
        read: Callable[[str, int, int], bytes],
        size: Callable[[str], int | None],
    ) -> None:
        self._put = put
        self._read = read
        self._size = size
        self._kept: set[Scope] = set()
        self._known: dict[tuple[str, str], Scope] = {}

    def keep(self, scope: Scope) -> None:
        """Write the note, once, if the scope needs one."""
        if scope in self._kept:
            return
        if any(map(blob_names.is_hashed, map(blob_names.encode, scope))):
            self._put(blob_names.prefix(scope) + NOTE, json.dumps(list(scope)).encode(), "application/json")
        self._kept.add(scope)

    def read(self, tenant: str, project: str) -> Scope:
        """Return the scope of two encoded names."""
        if not (blob_names.is_hashed(tenant) or blob_names.is_hashed(project)):
            return Scope(blob_names.decode(tenant), blob_names.decode(project))
        found = self._known.get((tenant, project))
        if found is None:
            key = f"{tenant}/{project}/{NOTE}"
            size = self._size(key)
            note = json.loads(self._read(key, 0, size)) if size else [tenant, project]
            found = self._known[tenant, project] = Scope(*note)
        return found
