"""How a type of job is declared.

    @longshore.job_type("word_count", version="1", time_limit_s=60)
    def word_count(inputs, params, ctx):
        return {"words": sum(len(one.read_text().split()) for one in inputs)}

A plain function runs in a process of its own that may hang, leak or die without harm; an `async def` runs in the worker's
event loop. What comes back becomes artifacts: bytes, text, anything JSON, a path, a `Result`, or a list of these.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from longshore.domain.keys import check_text, content_key
from longshore.domain.model import Scope
from longshore.domain.states import DOWNLOAD, TORRENT, UPLOAD
from longshore.errors import BadInput

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
TAKEN: Final = frozenset({DOWNLOAD, TORRENT, UPLOAD})
GROUP: Final = "longshore.job_types"  # entry points: each names a module that declares types
_types: dict[str, JobType] = {}


class JobFailed(Exception):
    """Raised by a handler to end its attempt with words of its own; `again=False` makes it final."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message, again)
        self.message, self.again = message, again


@dataclass(frozen=True, slots=True)
class JobType:
    """One declared type."""

    name: str
    function: Function
    version: str
    time_limit_s: float
    memory_bytes: int | None
    max_attempts: int | None

    @property
    def is_async(self) -> bool:
        """Tell whether it runs in the event loop instead of a process."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def address(self) -> tuple[str, str]:
        """Say where another process finds the function."""
        return self.function.__module__, self.function.__qualname__


@dataclass(frozen=True, slots=True)
class Input:
    """An input artifact as a handler sees it: readable, whatever backend holds it."""

    artifact_id: str
    artifact_type: str
    content_type: str
    size_bytes: int
    sha256: str
    name: str | None
    path: Path

    def open(self) -> BinaryIO:
        """Open the bytes."""
        return self.path.open("rb")

    def read_bytes(self) -> bytes:
        """Read the bytes."""
        return self.path.read_bytes()

    def read_text(self, encoding: str = "utf-8") -> str:
        """Read the bytes as text."""
        return self.path.read_text(encoding)


@dataclass(frozen=True, slots=True)
class Result:
    """One result artifact."""

    body: bytes | str | Path
    artifact_type: str = "result"
    name: str | None = None
    content_type: str = "application/octet-stream"
    schema_version: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def job_type(
    name: str,
    *,
    version: str = "1",
    time_limit_s: float = 3600.0,
    memory_bytes: int | None = None,
    max_attempts: int | None = None,
) -> Callable[[F], F]:
    """Declare a type of job. `version` is part of a job's identity: a new one works on old inputs again."""
    check_text("job type", name, limit=63)
    if name in TAKEN:
        raise BadInput(f"{name!r} is a type of longshore's own")

    def declare(function: F) -> F:
        _types[name] = JobType(name, function, version, time_limit_s, memory_bytes, max_attempts)
        return function

    return declare


def own_key(scope: Scope, job_type: str, input_sha256: list[str], params: dict[str, Any]) -> str:
    """Key a job by its inputs' bytes, its parameters and its type's version (seed 004).

    Whoever hands a job in need not have its handler: a version that is not known here is no part of the key.
    """
    kind = known_types().get(job_type)
    identity: dict[str, Any] = {"params": params} | ({"version": kind.version} if kind else {})
    return content_key(*scope, job_type, input_sha256, identity)


def known_types() -> dict[str, JobType]:
    """Give every declared type; entry points of installed packages are loaded first."""
    _load_entry_points()
    return dict(_types)


def _load_entry_points() -> None:
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        point.load()


def as_results(value: object) -> list[Result]:
    """Take what a handler returned; anything else than results is refused."""
    if value is None:
        return []
    if isinstance(value, list | tuple) and any(isinstance(item, Result | bytes | Path) for item in value):
        return [one for item in value for one in as_results(item)]
    return [_as_result(value)]


def _as_result(value: object) -> Result:
    match value:
        case Result():
            return value
        case bytes():
            return Result(value)
        case Path():
            return Result(value, name=value.name)
        case str():
            return Result(value, content_type="text/plain")
        case _:
            try:
                text = json.dumps(value, ensure_ascii=False, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise BadInput(f"a handler returned what is no result: {error}") from None
            return Result(text, content_type="application/json")
