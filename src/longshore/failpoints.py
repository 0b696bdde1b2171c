"""Named places where a test can kill, raise, delay or hold the program. Off unless `LONGSHORE_FAILPOINTS` is set.

    LONGSHORE_FAILPOINTS="publish.link=kill@3;register.commit=raise;claim.commit=delay:0.2;stream.write=pause:/dir"

`@N` acts at the N-th hit only (default 1); `pause:DIR` makes DIR/NAME.here and waits until DIR/NAME.go exists.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

KNOWN: set[str] = set()
_counts: dict[str, int] = {}
_lock = threading.Lock()


class FailpointRaised(OSError):
    """Raised at a failpoint on a test's request."""


def declare(*names: str) -> None:
    """Register names at import, so that a test can check whether each was hit."""
    KNOWN.update(names)


def _parse(spec: str) -> dict[str, tuple[str, str, int]]:
    actions = {}
    for item in filter(None, (piece.strip() for piece in spec.split(";"))):
        name, _, action = item.partition("=")
        action, _, at = action.partition("@")
        verb, _, argument = action.partition(":")
        actions[name] = (verb, argument, int(at or 1))
    return actions


def _act(name: str, verb: str, argument: str) -> None:
    if verb == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif verb == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif verb == "raise":
        raise FailpointRaised(int(argument or 5), f"failpoint {name}")
    elif verb == "delay":
        time.sleep(float(argument))
    elif verb == "pause":
        here, go = Path(argument, f"{name}.here"), Path(argument, f"{name}.go")
        here.touch()
        while not go.exists():
            time.sleep(0.005)


def _armed(actions: dict[str, tuple[str, str, int]], log: str | None) -> Callable[[str], None]:
    def reach(name: str) -> None:
        with _lock:
            _counts[name] = count = _counts.get(name, 0) + 1
        if log and count == 1:
            with open(log, "a", encoding="utf-8") as file:
                file.write(name + "\n")
        action = actions.get(name)
        if action and (count == action[2]):
            _act(name, action[0], action[1])

    return reach


def _nothing(name: str) -> None:
    """Do nothing: the default outside tests."""


def arm(spec: str, log: str | None = None) -> None:
    """Set the actions of failpoints in this process."""
    global hit
    _counts.clear()
    hit = _armed(_parse(spec), log) if spec or log else _nothing


def arm_by_environment() -> None:
    """Set the actions from the environment, and reset the counts: at import, and in a forked process."""
    arm(os.environ.get("LONGSHORE_FAILPOINTS", ""), os.environ.get("LONGSHORE_FAILPOINTS_LOG"))


hit: Callable[[str], None] = _nothing
arm_by_environment()
