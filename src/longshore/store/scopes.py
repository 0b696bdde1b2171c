"""Which scope an encoded name stands for, where the name itself is too long to be read back: a note beside the blobs."""

from __future__ import annotations

import json
from collections.abc import Callable

from longshore.domain.model import Scope
from longshore.store import names
from longshore.store.parts import Part

NOTE = ".scope.json"


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
