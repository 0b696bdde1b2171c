"""Runs one command in a forked child in which one call fails: a system call, a statement of SQLite, or one of libcurl.

The parent imports everything once; each child counts the calls of its class and lets the N-th one fail. A child tells through
a pipe whether it came that far, so that a sweep ends by itself.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import apsw
import pycurl

from longshore.store.durability import filesystem
from tests.support.program import environment

Class = Literal["os", "sql", "curl"]
CALLS = (
    "open", "pwrite", "write", "link", "mkdir", "fsync", "unlink", "rename", "replace", "fchmod", "ftruncate", "pread", "scandir",
    "rmdir", "chmod",
)  # fmt: skip
LIMIT_S = 120.0


@dataclass(frozen=True)
class Outcome:
    """How a struck command ended."""

    code: int
    stderr: str
    failed: str  # the call that failed; empty: there were fewer


class Striker:
    """Counts calls and lets one of them fail, once."""

    def __init__(self, kind: Class, at: int, code: int, where: Path) -> None:
        self.kind, self.at, self.code, self.where, self.count, self.failed = kind, at, code, str(where), 0, ""

    def hit(self, name: str, arguments: object) -> bool:
        self.count += 1
        if self.count == self.at:
            self.failed = f"{name} {str(arguments)[:200]}"
        return self.count == self.at

    def arm(self) -> None:
        """Put the counting calls in place of the real ones."""
        if self.kind == "os":
            for name in CALLS:
                setattr(os, name, self._call(name, getattr(os, name)))
            filesystem.syncfs = self._call("syncfs", filesystem.syncfs)
            fcntl.flock = self._call("flock", fcntl.flock)
        elif self.kind == "sql":
            apsw.connection_hooks.append(lambda connection: connection.set_exec_trace(self._statement))
        else:
            for name in ("Curl", "CurlMulti"):
                setattr(pycurl, name, self._handle(name, getattr(pycurl, name)))

    def _call(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._is_ours(arguments, named) and self.hit(name, arguments):
                raise OSError(self.code, os.strerror(self.code), str(arguments[0]) if arguments else None)
            return real(*arguments, **named)

        return call

    def _is_ours(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Leave Python's own imports and devices alone."""
        first = arguments[0] if arguments else ""
        if isinstance(first, int):
            return first > 2
        text = os.fsdecode(first) if isinstance(first, str | bytes | os.PathLike) else ""
        return text.startswith(self.where) or "dir_fd" in named or not text.startswith("/")

    def _statement(self, _cursor: Any, text: str, _values: Any) -> bool:
        if self.hit("sql", text):
            raise (
                apsw.FullError("database or disk is full")
                if self.code == errno.ENOSPC
                else apsw.IOError("disk I/O error")
            )
        return True

    def _handle(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def make(*arguments: Any) -> Any:
            if self.hit(name, arguments):
                raise pycurl.error(pycurl.E_FAILED_INIT, "failed init")
            return real(*arguments)

        return make


def struck(words: list[object], kind: Class, at: int, *, code: int, home: Path, stdin: bytes = b"") -> Outcome:
    """Run a command whose N-th call of a class fails."""
    errors, told = home / "stderr", home / "told"
    given = home / "stdin"
    given.write_bytes(stdin)
    told.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _in_child(words, Striker(kind, at, code, home), errors, told, given)
    end = time.monotonic() + LIMIT_S
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError(f"{words} hangs when call {at} of {kind} fails")
        time.sleep(0.002)
    return Outcome(
        os.waitstatus_to_exitcode(ended[1]),
        errors.read_text("utf-8", "replace"),
        told.read_text() if told.exists() else "",
    )


def _in_child(words: list[object], striker: Striker, errors: Path, told: Path, given: Path) -> None:
    number = 99
    try:
        for target, path, flags in ((0, given, os.O_RDONLY), (1, Path(os.devnull), os.O_WRONLY), (2, errors, 0o1101)):
            descriptor = os.open(path, flags, 0o600)
            os.dup2(descriptor, target)
            os.close(descriptor)
        sys.stdin, sys.stdout, sys.stderr = (open(n, "r" if n == 0 else "w") for n in range(3))  # noqa: SIM115
        with mock.patch.dict(os.environ, environment({}), clear=True):
            from longshore.cli.run_command import run

            striker.arm()
            number = run([str(word) for word in words])
    except SystemExit as over:
        number = over.code if isinstance(over.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        striker.at = -1
        sys.stdout.flush()
        sys.stderr.flush()
        if striker.failed:
            told.write_text(striker.failed)
        os._exit(number if isinstance(number, int) and number >= 0 else 98)
