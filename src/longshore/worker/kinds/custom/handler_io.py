"""The scratch directory of a handler, files that it returns, and text that it prints."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, Self

from longshore.domain.model import Lease
from longshore.errors import Reasoned
from longshore.store.durability import filesystem

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_in_handler: ContextVar[bool] = ContextVar("longshore_in_handler", default=False)


@contextmanager
def open_result(path: Path, scratch: Path) -> Iterator[int]:
    """Open a file that a handler returned: a regular one in its scratch directory, reached through no link."""
    try:
        inside = path.relative_to(scratch).parts
    except ValueError:
        inside = ()
    if not inside or ".." in inside:
        raise Reasoned("bad_result", f"{path} is not in the scratch directory (ctx.scratch)")
    try:
        descriptor = _open_below(scratch, inside)
    except OSError as error:
        raise Reasoned("bad_result", f"{path} cannot be read: {error.strerror}") from None
    try:
        if not S_ISREG(os.fstat(descriptor).st_mode):
            raise Reasoned("bad_result", f"{path} is not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def _open_below(folder: Path, inside: tuple[str, ...]) -> int:
    directory = os.open(folder, _FOLDER)
    try:
        for name in inside[:-1]:
            below = os.open(name, _FOLDER, dir_fd=directory)
            os.close(directory)
            directory = below
        return os.open(inside[-1], _FILE, dir_fd=directory)
    finally:
        os.close(directory)


class HandlerStdout:
    """Stands for `sys.stdout` while async handlers run: what they print goes to stderr, everything else where it went."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _in_handler.get() else self.real, name)


@contextmanager
def print_to_stderr() -> Iterator[None]:
    """Send what this task prints, and what its threads and tasks print, to stderr."""
    if not isinstance(sys.stdout, HandlerStdout):
        sys.stdout = HandlerStdout(sys.stdout)
    token = _in_handler.set(True)
    try:
        yield
    finally:
        _in_handler.reset(token)


def restore_stdout() -> None:
    """Put the real `sys.stdout` back."""
    if isinstance(sys.stdout, HandlerStdout):
        sys.stdout = sys.stdout.real


class ScratchDirectory:
    """The directory of one attempt: made when its path is asked for, removed with everything in it after the block."""

    def __init__(self, parent: Path, lease: Lease) -> None:
        self._parent, self._prefix = parent, f"{lease.job_id}.{lease.epoch}."
        self._made: Path | None = None
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        """The directory."""
        with self._lock:
            if self._made is None:
                filesystem.make_root(self._parent)
                made = tempfile.mkdtemp(prefix=self._prefix, dir=self._parent)
                self._made = Path(os.path.realpath(made))
            return self._made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)
