"""Which scope an encoded name stands for, where the name itself is too long to be read back: a note beside the blobs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable

from longshore.domain.model import Scope
from longshore.store import disk, names
from longshore.store.parts import Part

NOTE = ".scope.json"


def write_note(scope: Scope, project: int) -> None:
    """Say beside a hashed name what it stands for; other names need no note."""
    if not any(map(names.is_hashed, map(names.encode, scope))):
        return
    with contextlib.suppress(FileExistsError):
        note = os.open(NOTE, disk.CREATE, 0o600, dir_fd=project)
        try:
            disk.write_all(note, json.dumps(list(scope)).encode())
            os.fsync(note)
        finally:
            os.close(note)


def read_note(path: tuple[str, ...], project: int) -> Scope:
    """Give the scope that a tenant's and a project's directory stand for."""
    if any(map(names.is_hashed, path)):
        with contextlib.suppress(OSError, ValueError):
            with os.fdopen(os.open(NOTE, disk.READ, dir_fd=project), "rb") as file:
                return Scope(*json.loads(file.read(1 << 20)))
    return Scope(names.decode(path[0]), names.decode(path[1]))


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
        if any(map(names.is_hashed, map(names.encode, scope))):
            self._put(names.prefix(scope) + NOTE, json.dumps(list(scope)).encode(), "application/json")
        self._kept.add(scope)

    def read(self, tenant: str, project: str) -> Scope:
        """Give the scope of two encoded names."""
        if not (names.is_hashed(tenant) or names.is_hashed(project)):
            return Scope(names.decode(tenant), names.decode(project))
        found = self._known.get((tenant, project))
        if found is None:
            key = f"{tenant}/{project}/{NOTE}"
            size = self._size(key)
            note = json.loads(self._read(key, 0, size)) if size else [tenant, project]
            found = self._known[tenant, project] = Scope(*note)
        return found
