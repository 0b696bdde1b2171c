"""File names for results in a directory: from display names, always inside it, never overwriting one another."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from longshore.domain.file_names import last_component, safe_name, url_name, with_hash

if TYPE_CHECKING:
    from collections.abc import Iterable

    from longshore.depot import Got
    from longshore.domain.model import Artifact, JobRequest


class Names:
    """Chooses a name for each result; different contents with the same name get their hash appended.

    The directory decides between runs: a file that has the bytes keeps its name, under the plain name or with the
    hash, and a plain name that other bytes have is left to them. So a run that was killed and started again, or a
    second list, places every file once.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._taken: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, got: Got) -> Path:
        """Return the path for one result, and reserve it."""
        name, sha256 = _plain(got)
        with self._lock:
            free = self._taken.setdefault(name.casefold(), sha256) == sha256
        return self.directory / (name if free else with_hash(name, sha256))

    def with_hash(self, got: Got) -> Path:
        """Return the path for a result whose plain name another file has."""
        return self.directory / with_hash(*_plain(got))

    def placed_before(self, got: Got) -> Path | None:
        """Return the file in the directory that an earlier run placed for this result."""
        assert got.artifact is not None
        name, sha256 = _plain(got)
        both = (self.directory / name, self.directory / with_hash(name, sha256))
        return next((path for path in both if is_same(path, got.artifact)), None)

    def forget(self, got: Got) -> None:
        """Release the name of a result that was not placed; a new fetch may bring other bytes."""
        name, sha256 = _plain(got)
        with self._lock:
            if self._taken.get(name.casefold()) == sha256:
                del self._taken[name.casefold()]


def _plain(got: Got) -> tuple[str, str]:
    assert got.artifact is not None
    return file_name(got.artifact.name, got.url, got.artifact.sha256), got.artifact.sha256


def shared_names(requests: Iterable[JobRequest]) -> set[str]:
    """Return the names, in lower case, that several jobs of a list ask for: list order decides who gets the plain one."""
    first: dict[str, str | None] = {}
    shared: set[str] = set()
    for request in requests:
        name = file_name(request.name, request.url, "").casefold()
        if first.setdefault(name, request.key) != request.key:
            shared.add(name)
    return shared


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
    return safe_name(last_component(display or "") or url_name(url), fallback=sha256)
