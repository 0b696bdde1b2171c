"""The names that one export has used, in an unnamed temporary file, so that a million of them need no memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import apsw

_CACHE_KIB: Final = 4_096


class UsedNames:
    """Names and their owners, on disk. The data does not outlive the process, so it is not made durable."""

    def __init__(self) -> None:
        self._file = apsw.Connection("")  # an unnamed temporary SQLite database
        self._file.execute(f"PRAGMA cache_size = -{_CACHE_KIB}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        self._file.execute("CREATE TABLE taken (name TEXT PRIMARY KEY, owner TEXT NOT NULL) WITHOUT ROWID; BEGIN")

    def owner(self, name: str, wanted: str) -> str:
        """Return the owner of a name; assign a free name to `wanted`."""
        row = self._file.execute("SELECT owner FROM taken WHERE name = ?", (name,)).get
        if row is None:
            self._file.execute("INSERT INTO taken VALUES (?, ?)", (name, wanted))
        return wanted if row is None else str(row)

    def first(self, name: str) -> bool:
        """Take a name without an owner; return False if it was already taken."""
        before = self._file.total_changes()
        self._file.execute("INSERT OR IGNORE INTO taken VALUES (?, '')", (name,))
        return self._file.total_changes() > before

    def __iter__(self) -> Iterator[str]:
        """Return the names in order."""
        return (str(name) for (name,) in self._file.execute("SELECT name FROM taken ORDER BY name"))
