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
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, Protocol, TypeVar

from longshore.domain.identity.keys import check_text, content_key
from longshore.domain.kinds import DOWNLOAD, TORRENT, UPLOAD
from longshore.domain.model import Scope
from longshore.domain.reasons import check_code
from longshore.errors import BadInput

if TYPE_CHECKING:
    from longshore.ledger.records import CompletedJob
    from longshore.ledger.user_tables import UserTx

Function = Callable[..., Any]
OnCompleted = Callable[["UserTx", "CompletedJob"], object]
Isolation = Literal["process", "none"]
F = TypeVar("F", bound=Function)
TAKEN: Final = frozenset({DOWNLOAD, TORRENT, UPLOAD})
GROUP: Final = "longshore.job_types"  # entry points: each names a module that declares types
MAX_NAME: Final = 1_024
MAX_METADATA: Final = 4 << 20
MEMORY_BYTES: Final = 8 << 30  # of address space, unless a type says otherwise
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # as JSON writes it
_types: dict[str, JobType] = {}


class JobFailed(Exception):
    """Raised by a handler to end its attempt with words of its own; `retryable=False` makes it final.

    `code` is the reason that the failure gets instead of `handler_error`, for example `model.busy`: lists, filters and the
    API have it where they have the program's own reasons. `again` is the earlier name of `retryable`.
    """

    def __init__(
        self, message: str, *, code: str | None = None, retryable: bool | None = None, again: bool = True
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = None if code is None else check_code(code)
        self.again = again if retryable is None else retryable

    @property
    def reason(self) -> str:
        """Return the reason of the failure."""
        return self.code or "handler_error"


@dataclass(frozen=True, slots=True)
class JobType:
    """One declared type."""

    name: str
    function: Function
    version: str
    time_limit_s: float
    memory_bytes: int | None
    max_attempts: int | None
    environment: tuple[str, ...] = ()
    requires_results: bool = False
    on_completed: OnCompleted | None = None
    isolation: Isolation = "process"

    @property
    def is_inside(self) -> bool:
        """Return whether it runs in the worker's own process."""
        return self.is_async or self.isolation == "none"

    @property
    def is_async(self) -> bool:
        """Return whether it runs in the event loop instead of a process."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def address(self) -> tuple[str, str]:
        """Return where another process finds the function."""
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
    schema_version: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

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


class Context(Protocol):
    """`ctx` of a handler that is a plain function."""

    tenant_id: str
    project_id: str
    run_id: str | None
    request_id: str | None  # of the API request that submitted the job
    job_id: str
    attempt: int  # 1 at the first
    scratch: Path  # a directory of this attempt, removed after it

    def progress(self, done: int, total: int | None = None) -> None:
        """Report progress; stops the handler here if the job was canceled."""

    def check(self) -> None:
        """Stop the handler here if the job was canceled or the worker has to stop."""

    def effect(
        self, kind: str, act: Callable[[], dict[str, Any]], *, effect_class: str = "keyed", **extras: Any
    ) -> dict[str, Any]:
        """Perform an external effect at most once, as far as that can be known; return its result, new or recorded."""
        ...


class AsyncContext(Protocol):
    """`ctx` of a handler that is an `async def`: the same, awaited."""

    tenant_id: str
    project_id: str
    run_id: str | None
    request_id: str | None
    job_id: str
    attempt: int
    scratch: Path

    async def progress(self, done: int, total: int | None = None) -> None:
        """Report progress."""

    async def check(self) -> None:
        """Yield to the event loop; raises CancelledError here if the job was canceled."""

    async def effect(
        self, kind: str, act: Callable[[], Awaitable[dict[str, Any]]], *, effect_class: str = "keyed", **extras: Any
    ) -> dict[str, Any]:
        """Perform an external effect at most once, as far as that can be known; return its result, new or recorded."""
        ...


def job_type(
    name: str,
    *,
    version: str = "1",
    time_limit_s: float = 3600.0,
    memory_bytes: int | None = MEMORY_BYTES,
    max_attempts: int | None = None,
    environment: Sequence[str] = (),
    requires_results: bool = False,
    on_completed: OnCompleted | None = None,
    isolation: Isolation = "process",
) -> Callable[[F], F]:
    """Declare a type of job. `version` is part of a job's identity: a new one works on old inputs again.

    `requires_results`: a job without a result fails. `on_completed(tx, done)` runs in the transaction that completes a job,
    for tables of your own: both are written, or neither. `isolation="none"` runs a plain function in a thread of the worker:
    fast, and without any boundary, so `time_limit_s`, `memory_bytes` and `environment` do not hold.
    """
    if isolation not in ("process", "none"):
        raise BadInput(f"isolation is 'process' or 'none', not {isolation!r}")
    check_text("job type", name, limit=63)
    if name in TAKEN:
        raise BadInput(f"{name!r} is a type of longshore's own")
    if isinstance(environment, str):
        raise BadInput("environment is a list of names, not one text")

    def declare(function: F) -> F:
        limits = (time_limit_s, memory_bytes, max_attempts, tuple(environment))
        _types[name] = JobType(name, function, version, *limits, requires_results, on_completed, isolation)
        return function

    return declare


def own_key(
    scope: Scope,
    job_type: str,
    input_sha256: list[str],
    params: dict[str, Any],
    types: Mapping[str, JobType] | None = None,
) -> str:
    """Return a job's key: a hash of its inputs' bytes, its parameters and its type's version.

    The submitting process need not have the handler installed; the key then does not include a version. A caller that
    makes many keys passes the known types.
    """
    kind = (known_types() if types is None else types).get(job_type)
    identity: dict[str, Any] = {"params": params} | ({"version": kind.version} if kind else {})
    return content_key(*scope, job_type, input_sha256, identity)


def known_types() -> dict[str, JobType]:
    """Return every declared type; entry points of installed packages are loaded first."""
    _load_entry_points()
    return dict(_types)


@cache
def _load_entry_points() -> None:
    # Once per process: the search reads the metadata of every installed package, which takes milliseconds.
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
            return checked(value)
        case bytes():
            return Result(value)
        case Path():
            return checked(Result(value, name=value.name))
        case str():
            return checked(Result(value, content_type="text/plain"))
        case _:
            return checked(Result(_json("a result", value), content_type="application/json"))


def checked(result: Result) -> Result:
    """Refuse what the ledger could not write, and make plain values of what it can."""
    body = result.body
    if not isinstance(body, bytes | str | Path):
        raise BadInput(f"the body of a result is bytes, text or a path, not {type(body).__name__}")
    if isinstance(body, str):
        _text("the text of a result", body)
    if not isinstance(result.metadata, dict):
        raise BadInput(f"the metadata of a result is a dict, not {type(result.metadata).__name__}")
    _text("the artifact type of a result", result.artifact_type, MAX_NAME)
    _text("the content type of a result", result.content_type, MAX_NAME, lines=False)
    for what, text in (("name", result.name), ("schema version", result.schema_version)):
        if text is not None:
            _text(f"the {what} of a result", text, MAX_NAME)
    metadata = _json("the metadata of a result", result.metadata)
    if _NUL.search(metadata):
        raise BadInput("the metadata of a result contains a NUL")
    if len(metadata) > MAX_METADATA:
        raise BadInput(f"the metadata of a result has {len(metadata)} characters; {MAX_METADATA} are allowed")
    return replace(result, metadata=json.loads(metadata))


def _json(what: str, value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{what} cannot be written as JSON: {error}") from None
    return _text(what, text)


def _text(what: str, value: object, limit: int | None = None, *, lines: bool = True) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{what} must be text, not {type(value).__name__}")
    if limit is not None and (len(value) > limit or "\0" in value):
        raise BadInput(f"{what} has more than {limit} characters, or a NUL")
    if not lines and not value.isprintable():
        raise BadInput(f"{what} has characters that cannot be printed")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{what} contains a lone surrogate") from None
    return value
