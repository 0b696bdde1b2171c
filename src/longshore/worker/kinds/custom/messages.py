"""Messages between a worker and the processes of its handlers: one JSON document per line over a pipe.

A handler is third-party code, and hostile input may take over its process. So its messages are data: reading one runs no code
in the worker (a pickle would), does not wait for the rest of a half message, and is bounded in size. A message that does not
have the shape of its kind raises `BadMessage`, which ends the process. This protects the worker from what comes through the
pipe; it is not a sandbox, because the process runs as the same user.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from longshore.errors import BadInput, EffectInDoubt, LeaseLost, LongshoreError, ResultTooLarge
from longshore.worker.kinds.custom.job_types import Input, Result, checked

MAX_BYTES: Final = 64 << 20
READ_BYTES: Final = 1 << 20
_ERRORS: Final = {kind.__name__: kind for kind in (BadInput, EffectInDoubt, LeaseLost, ResultTooLarge)}


class BadMessage(BadInput):
    """A message that cannot be sent, or that was not understood."""


class Channel:
    """One end of the pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._unread = bytearray()
        self._searched = 0  # how much of it is known to have no end of line

    def send(self, message: object) -> None:
        """Write one message; raise `BadMessage` before anything is written if it cannot be sent."""
        try:
            line = json.dumps(message, default=os.fspath).encode("ascii") + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise BadMessage(f"it cannot be written as JSON: {error}") from None
        if len(line) > MAX_BYTES:
            raise BadMessage(f"it has {len(line)} bytes as JSON; {MAX_BYTES} are allowed")
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._pipe.fileno(), rest) :]

    def receive(self, wait_s: float | None) -> Any:
        """Return the next message, or None if no whole one has come yet; waits for one read at most."""
        if self._whole() < 0 and self._pipe.poll(wait_s):
            read = os.read(self._pipe.fileno(), READ_BYTES)
            if not read:
                raise EOFError
            self._unread += read
        end = self._whole()
        if end < 0:
            if self._searched > MAX_BYTES:
                raise BadMessage("it is too long")
            return None
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        self._searched = 0
        return _document(line)

    def wait(self) -> Any:
        """Return the next message."""
        while (message := self.receive(None)) is None:
            pass
        return message

    @property
    def is_quiet(self) -> bool:
        """Return whether nothing is left to read."""
        return not self._unread and not self._pipe.poll()

    def close(self) -> None:
        """Close this end."""
        self._pipe.close()

    def _whole(self) -> int:
        end = self._unread.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._unread)
        return end


def _document(line: bytes) -> Any:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if message is None:
        raise BadMessage("it is not a JSON document")
    return message


def input_from(value: dict[str, Any]) -> Input:
    """Return an input of a task as the worker wrote it."""
    return Input(**{**value, "path": Path(value["path"])})


def result_message(result: Result) -> dict[str, Any]:
    """Return a result whose body is a file as a message."""
    return asdict(result)


def results_from(value: object) -> list[Result]:
    """Return the results that a process reported, checked again: the process may not have checked them."""
    try:
        return [_result(one) for one in value]  # type: ignore[attr-defined]
    except (BadInput, TypeError, KeyError, AttributeError) as error:
        raise BadMessage(f"it has no results: {type(error).__name__}") from None


def _result(value: dict[str, Any]) -> Result:
    body = value["body"]
    if not isinstance(body, str) or "\0" in body:
        raise BadMessage("the body of a result is not a path")
    return checked(Result(**{**value, "body": Path(body)}))


def error_message(error: LongshoreError) -> dict[str, Any]:
    """Return the answer for a request that failed in the worker."""
    return {"error": [type(error).__name__, str(error)]}


def error_from(value: list[str]) -> LongshoreError:
    """Return the error that the worker answered with."""
    return _ERRORS.get(value[0], LongshoreError)(value[1])
