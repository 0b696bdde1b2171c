"""File names for results in a directory: from display names, always inside it, never overwriting one another."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from longshore.domain.file_names import last_component, safe_name, url_name, with_hash
from longshore.domain.name_template import PLAIN, NamedFile, expand, expected_path
from longshore.store.local.place_outside import is_same

if TYPE_CHECKING:
    from collections.abc import Iterable

    from longshore.depot import Got
    from longshore.domain.model import JobRequest


class Names:
    """Chooses a name for each result; different contents with the same name get their hash appended.

    The directory decides between runs: a file that has the bytes keeps its name, under the plain name or with the
    hash, and a plain name that other bytes have is left to them. So a run that was killed and started again, or a
    second list, places every file once.
    """

    def __init__(self, directory: Path, template: str | None = None) -> None:
        self.directory, self.template = directory, template or PLAIN
        self._taken: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, got: Got) -> Path:
        """Return the path for one result, and reserve it."""
        name, sha256 = self._plain(got)
        with self._lock:
            free = self._taken.setdefault(name.casefold(), sha256) == sha256
        return self.directory / (name if free else with_hash(name, sha256))

    def with_hash(self, got: Got) -> Path:
        """Return the path for a result whose plain name another file has."""
        return self.directory / with_hash(*self._plain(got))

    def placed_before(self, got: Got) -> Path | None:
        """Return the file in the directory that an earlier run placed for this result."""
        assert got.artifact is not None
        name, sha256 = self._plain(got)
        both = (self.directory / name, self.directory / with_hash(name, sha256))
        return next((path for path in both if is_same(path, got.artifact, self.directory)), None)

    def forget(self, got: Got) -> None:
        """Release the name of a result that was not placed; a new fetch may bring other bytes."""
        name, sha256 = self._plain(got)
        with self._lock:
            if self._taken.get(name.casefold()) == sha256:
                del self._taken[name.casefold()]

    def _plain(self, got: Got) -> tuple[str, str]:
        """Return the path inside the directory that a result has if no other bytes have it, and its hash."""
        held = got.artifact
        assert held is not None
        file = NamedFile(
            name=file_name(held.name, got.url, held.sha256),
            url=got.url,
            work_id=got.work_id,
            sha256=held.sha256,
            content_type=held.content_type,
            artifact_id=held.artifact_id,
            job_id=got.job_id,
        )
        return expand(self.template, file), held.sha256

    def expected(self, name: str | None, url: str | None, work_id: str | None) -> str | None:
        """Return what is known of a path before the file is fetched; None: no other bytes can have the same path."""
        return expected_path(self.template, NamedFile(file_name(name, url, ""), url, work_id))

    def shared(self, requests: Iterable[JobRequest]) -> set[str]:
        """Return the expected paths that several jobs of a list have: list order decides which gets the plain one."""
        first: dict[str, str | None] = {}
        shared: set[str] = set()
        for request in requests:
            path = self.expected(request.name, request.url, request.work_id)
            if path is not None and first.setdefault(path, request.key) != request.key:
                shared.add(path)
        return shared


def file_name(display: str | None, url: str | None, sha256: str) -> str:
    """Return one safe path component for a name that a server or a URL suggests."""
    return safe_name(last_component(display or "") or url_name(url), fallback=sha256)
