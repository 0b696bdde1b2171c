"""A body that another program owns and still uses: it is linked, and never written, truncated or made read-only."""

from __future__ import annotations

import os

from longshore.domain.model import Scope
from longshore.errors import PublishFailed
from longshore.store.staging.part_facts import PartFacts
from longshore.store.staging.parts import Part


class ForeignPart(Part):
    """An open file of another program, hashed by the caller; `link` publishes the same inode."""

    def __init__(self, fd: int, sha256: str, size_bytes: int, head: bytes) -> None:
        self._directory, self.direct_fd = -1, None
        self.facts = PartFacts(Scope(), "", 0)
        self.fd = os.dup(fd)
        self._sha256 = sha256
        self.size_bytes = size_bytes
        self.head = head
        self._reservation = None
        self.fsync_s = 0.0

    @property
    def sha256(self) -> str:
        """The hash that the caller computed."""
        return self._sha256

    def write_at(self, data: bytes | memoryview, offset: int, *, direct: bool = False) -> None:
        """Refuse to write to another program's file."""
        raise PublishFailed("a foreign file is never written")

    def cut(self, nbytes: int) -> None:
        """Refuse to change the length."""
        if nbytes != os.fstat(self.fd).st_size:
            raise PublishFailed("the foreign file has another length now")

    def seal(self) -> None:
        """Keep the file's mode; check that the length is still the hashed one."""
        self.cut(self.size_bytes)

    def move_to(self, name: str, parent: int, *, replace: bool = False) -> None:
        """Refuse to move the file: its owner still uses it."""
        raise PublishFailed("a foreign file is never moved")

    def discard(self) -> None:
        """Close the file; it belongs to another program and is not removed."""
        self.close()
