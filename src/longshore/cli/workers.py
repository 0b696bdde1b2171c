"""Worker processes: forked from this one, which has loaded everything already, or else started afresh (ADR 13).

What a worker is told is its stdin (when that ends, it drains), what it tells is its stdout. Each lives in a session of its
own, so that a terminal's Ctrl-C does not reach it.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final, NoReturn

from longshore import failpoints
from longshore.cli.main import end_quietly_by_signal
from longshore.cli.program import UNEXPECTED, run

STDERR: Final = 2
NEEDED: Final = ("longshore.cli.run", "longshore.cli.following", "longshore.depot.sync", "importlib.metadata")
_DESCRIPTORS: Final = "/proc/self/fd"
_THREADS: Final = "/proc/self/task"


class Worker:
    """One process that we started."""

    def __init__(self, pid: int, told: socket.socket, tells: int) -> None:
        self.pid = pid
        self.code: int | None = None  # once it has ended: its exit code, or the number of a signal below zero
        self.tells = os.fdopen(tells, "rb")
        # A socket and not a pipe: its end can be told at any moment, by a signal's handler too, without giving its
        # number back, under which a thread that is just writing would then write into somebody else's file.
        self._told = told

    def tell(self, line: bytes) -> None:
        """Write to its stdin; one that is gone or draining need not hear it."""
        with suppress(OSError):
            self._told.sendall(line)

    def let_drain(self) -> None:
        """End its stdin."""
        with suppress(OSError):  # it is gone
            self._told.shutdown(socket.SHUT_WR)

    def signal(self, number: int) -> None:
        """Send a signal, unless we have seen it end: what nobody has waited for keeps its number."""
        if self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for its end; give its code."""
        if self.code is None:
            try:
                self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            except ChildProcessError:  # whoever started us lets nobody wait (SIGCHLD is ignored)
                self.code = 0
        return self.code


def start(words: Sequence[str], count: int) -> list[Worker]:
    """Start workers, each with this command. Nothing may be open that two processes cannot share: no ledger above all."""
    if _alone():
        _load()
    forking = _alone()
    if forking:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # or each child would write it once more
        gc.freeze()  # a collection in a child would copy every page of what it inherits
    try:
        return [_started(words, forking=forking) for _ in range(count)]
    finally:
        if forking:
            gc.unfreeze()


def _alone() -> bool:
    """Tell whether this is the process's only thread: a fork copies the locks that others hold, and not who holds them."""
    with suppress(OSError):
        return len(os.listdir(_THREADS)) == 1  # also those that are not Python's
    return False  # not Linux: elsewhere the system's own libraries do not survive a fork


def _load() -> None:
    """Import what a worker needs; none of it opens anything or starts a thread."""
    for name in NEEDED:
        import_module(name)


def _started(words: Sequence[str], *, forking: bool) -> Worker:
    told, hears = socket.socketpair()
    tells, says = os.pipe()
    with hears, os.fdopen(says, "wb"):
        pid = os.fork() if forking else _spawned(words, hears.fileno(), says)
        if pid == 0:
            _work(words, hears.fileno(), says)
    return Worker(pid, told, tells)


def _spawned(words: Sequence[str], hears: int, says: int) -> int:
    pipes = [(os.POSIX_SPAWN_DUP2, hears, 0), (os.POSIX_SPAWN_DUP2, says, 1)]
    command = [sys.executable, "-m", "longshore", *words]
    return os.posix_spawn(sys.executable, command, os.environ, file_actions=pipes, setsid=True)


def _work(words: Sequence[str], hears: int, says: int) -> NoReturn:
    """In a forked child: become what a fresh process would be, do the work, and never go back into the parent's code."""
    code = UNEXPECTED
    try:
        end_quietly_by_signal()
        os.setsid()
        os.dup2(hears, 0)
        os.dup2(says, 1)
        _let_go()
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 -- they stay
        sys.stderr = open(STDERR, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        failpoints.arm_by_environment()  # what the parent passed is not what this one passes
        code = run(list(words))
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 -- whatever it is, it ends here: above is the parent's code
        traceback.print_exc()
    finally:
        os._exit(code)


def _let_go() -> None:
    """Close what a new program would not inherit: the pipes of siblings above all, whose end would never be seen."""
    for number in map(int, os.listdir(_DESCRIPTORS)):
        with suppress(OSError):  # the one that listed them
            if number > STDERR and not os.get_inheritable(number):
                os.close(number)
