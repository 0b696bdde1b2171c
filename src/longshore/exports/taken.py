"""The names that one export has given out, in a private file that vanishes: a million of them need no memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import apsw

_CACHE_KIB: Final = 4_096


class Taken:
    """Names and who has them, beyond the size of memory. Nothing here outlives the process, so nothing is made durable."""

    def __init__(self) -> None:
        self._file = apsw.Connection("")  # SQLite's own kind of temporary file: it has no name
        self._file.execute(f"PRAGMA cache_size = -{_CACHE_KIB}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        self._file.execute("CREATE TABLE taken (name TEXT PRIMARY KEY, owner TEXT NOT NULL) WITHOUT ROWID; BEGIN")

    def owner(self, name: str, wanted: str) -> str:
        """Tell who has a name; it is whoever wants it, if nobody had it."""
        row = self._file.execute("SELECT owner FROM taken WHERE name = ?", (name,)).get
        if row is None:
            self._file.execute("INSERT INTO taken VALUES (?, ?)", (name, wanted))
        return wanted if row is None else str(row)

    def first(self, name: str) -> bool:
        """Take a name that has no owner; False if it was taken before."""
        before = self._file.total_changes()
        self._file.execute("INSERT OR IGNORE INTO taken VALUES (?, '')", (name,))
        return self._file.total_changes() > before

    def __iter__(self) -> Iterator[str]:
        """Give the names in order."""
        return (str(name) for (name,) in self._file.execute("SELECT name FROM taken ORDER BY name"))
