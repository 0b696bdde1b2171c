"""A depot in a temporary directory, a hostile origin beside it, and the program that works on both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.origin import Origin
from tests.support.program import Ran, execute, invoke

LOOPBACK = {
    "LONGSHORE_NETWORK__ALLOW": '["127.0.0.0/8"]',
    "LONGSHORE_RETRY__BASE_S": "0.01",
    "LONGSHORE_RETRY__CAP_S": "0.05",
}


@dataclass
class Box:
    """Where a test's depot is, and how the program is called on it."""

    home: Path
    env: dict[str, str]

    @property
    def depot(self) -> Path:
        return self.home / "depot"

    def __call__(self, *arguments: object, stdin: bytes = b"", env: dict[str, str] | None = None) -> Ran:
        """Run a command in this process."""
        return invoke(*arguments, stdin=stdin, env=self.env | (env or {}))

    def process(self, *arguments: object, stdin: bytes | None = None) -> Ran:
        """Run a command as a process."""
        return execute(*arguments, stdin=stdin, env=self.env)

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.home / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def counts(self) -> dict[str, int]:
        """The jobs that there are, without the statuses that have none."""
        (status,) = self("status", "--json").ok().lines
        return {name: count for name, count in status["jobs"].items() if count}


def put_instead(store: Path, what: str) -> None:
    """Put at the place of a store what is there when its disk is not mounted, or something foreign."""
    if what == "directory":
        store.mkdir()
    elif what == "file":
        store.write_text("x")
    elif what == "dangling":
        store.symlink_to(store.with_name("nowhere"))


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path, LOOPBACK | {"LONGSHORE_DEPOT": str(tmp_path / "depot")})


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server
