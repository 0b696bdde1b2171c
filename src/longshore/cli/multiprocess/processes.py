"""Worker processes: forked from this one, which has imported everything, or else started afresh (ADR 13).

A worker reads commands from its stdin (at end of file it drains) and writes events to its stdout. Each runs in its own
session, so that a terminal's Ctrl-C does not reach it.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final, NoReturn

from longshore import failpoints
from longshore.cli.main import end_quietly_by_signal
from longshore.cli.run_command import UNEXPECTED, run

STDERR: Final = 2
NEEDED: Final = (
    "longshore.cli.commands.run",
    "longshore.cli.multiprocess.child_pipe",
    "longshore.depot.sync_depot",
    "importlib.metadata",
)
_DESCRIPTORS: Final = "/proc/self/fd"
_THREADS: Final = "/proc/self/task"


class WorkerProcess:
    """One worker process."""

    def __init__(self, pid: int, told: socket.socket, tells: int) -> None:
        self.pid = pid
        self.code: int | None = None  # after its exit: the exit code, or a negative signal number
        self.tells = os.fdopen(tells, "rb")
        # A socket, not a pipe: a signal handler can shut it down at any moment without closing the descriptor.
        # A closed number could be reused, and a thread that is just writing would write into the wrong file.
        self._told = told

    def tell(self, line: bytes) -> None:
        """Write to its stdin; ignore a worker that has exited or drains."""
        with suppress(OSError):
            self._told.sendall(line)

    def let_drain(self) -> None:
        """Close its stdin."""
        with suppress(OSError):  # it has exited
            self._told.shutdown(socket.SHUT_WR)

    def signal(self, number: int) -> None:
        """Send a signal unless it was reaped: the PID stays valid until the process is waited for."""
        if self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for its exit and return its code."""
        if self.code is None:
            try:
                self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            except ChildProcessError:  # SIGCHLD is ignored, inherited from our parent
                self.code = 0
        return self.code


def start(words: Sequence[str], count: int) -> list[WorkerProcess]:
    """Start workers, each with this command. Nothing may be open that processes cannot share, such as the ledger."""
    if _alone():
        _load()
    forking = _alone()
    if forking:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # otherwise each child would write the buffer again
        gc.freeze()  # a collection in a child would copy every inherited page
    try:
        return [_started(words, forking=forking) for _ in range(count)]
    finally:
        if forking:
            gc.unfreeze()


def _alone() -> bool:
    """Return whether the process has one thread: a fork copies locks that other threads hold, but not the threads."""
    with suppress(OSError):
        for _ in range(20):  # a thread that was joined stays in /proc until the kernel has removed it
            if len(os.listdir(_THREADS)) == 1:  # includes threads that Python did not start
                return True
            if threading.active_count() > 1:
                return False
            time.sleep(0.005)
    return False  # not Linux: system libraries elsewhere do not survive a fork


def _load() -> None:
    """Import what a worker needs; none of the modules opens files or starts threads."""
    for name in NEEDED:
        import_module(name)


def _started(words: Sequence[str], *, forking: bool) -> WorkerProcess:
    told, hears = socket.socketpair()
    tells, says = os.pipe()
    with hears, os.fdopen(says, "wb"):
        pid = os.fork() if forking else _spawned(words, hears.fileno(), says)
        if pid == 0:
            _work(words, hears.fileno(), says)
    return WorkerProcess(pid, told, tells)


def _spawned(words: Sequence[str], hears: int, says: int) -> int:
    pipes = [(os.POSIX_SPAWN_DUP2, hears, 0), (os.POSIX_SPAWN_DUP2, says, 1)]
    command = [sys.executable, "-m", "longshore", *words]
    return os.posix_spawn(sys.executable, command, os.environ, file_actions=pipes, setsid=True)


def _work(words: Sequence[str], hears: int, says: int) -> NoReturn:
    """In a forked child: reset the state to a fresh process's, run, and never return into the parent's code."""
    code = UNEXPECTED
    try:
        end_quietly_by_signal()
        os.setsid()
        os.dup2(hears, 0)
        os.dup2(says, 1)
        _let_go()
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 -- they stay
        sys.stderr = open(STDERR, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        failpoints.arm_by_environment()  # counts of the parent do not apply here
        code = run(list(words))
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 -- never return into the parent's code
        traceback.print_exc()
    finally:
        os._exit(code)


def _let_go() -> None:
    """Close descriptors that exec would close, above all the siblings' pipes, which would otherwise never see EOF."""
    for number in map(int, os.listdir(_DESCRIPTORS)):
        with suppress(OSError):  # the descriptor of the listing itself
            if number > STDERR and not os.get_inheritable(number):
                os.close(number)
