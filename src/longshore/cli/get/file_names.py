"""File names for results in a directory: from display names, always inside it, never overwriting one another."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from longshore.exports.file_names import safe_name

if TYPE_CHECKING:
    from longshore.depot import Got
    from longshore.domain.model import Artifact


class Names:
    """Chooses a name for each result; different contents with the same name get their hash appended."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._taken: dict[str, str] = {}

    def of(self, got: Got) -> Path:
        """Return the path for one result."""
        assert got.artifact is not None
        sha256 = got.artifact.sha256
        name = file_name(got.artifact.name, got.url, sha256)
        if self._taken.setdefault(name.casefold(), sha256) != sha256:
            stem, dot, ext = name.rpartition(".")
            name = f"{stem}-{sha256[:12]}.{ext}" if dot and stem else f"{name}-{sha256[:12]}"
        return self.directory / name

    def forget(self, got: Got) -> None:
        """Release the name of a result that was not placed; a new fetch may bring other bytes."""
        assert got.artifact is not None
        name = file_name(got.artifact.name, got.url, got.artifact.sha256).casefold()
        if self._taken.get(name) == got.artifact.sha256:
            del self._taken[name]


def is_same(target: Path, artifact: Artifact) -> bool:
    """Return whether the file exists and has these bytes, so that a repeated command has nothing to do."""
    try:
        if target.is_symlink() or not target.is_file() or target.stat().st_size != artifact.size_bytes:
            return False
        with target.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == artifact.sha256
    except OSError:
        return False


def file_name(display: str | None, url: str | None, sha256: str) -> str:
    """Return one safe path component for a name that a server or a URL suggests."""
    wanted = (display or "").replace("\\", "/").rstrip("/").rpartition("/")[2]
    if not wanted.strip(" ."):
        wanted = unquote(urlsplit(url or "").path).rstrip("/").rpartition("/")[2]
    return safe_name(wanted, fallback=sha256)
