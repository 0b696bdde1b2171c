"""Processes that run handlers: reused while they behave, killed when they hang, replaced when they die or grow.

A process talks to its worker through one pipe: the task goes in, requests (progress, effects, shall I stop?) and the result
come out. Whatever happens to the process, the worker sees an end.

A process is kept for the next task, so a message must not be taken for the answer to another task. Each task has a random
token; every message carries the token and the PID of its sender, and a message with another one kills the process. A child
that a handler forks has no pipe: it is closed after the fork, and a child that returns from the handler is ended there.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import pickle
import queue
import resource
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from longshore.errors import EffectInDoubt, LongshoreError, Reasoned
from longshore.worker.kinds.custom.job_types import Input, JobFailed, Result, as_results

log = logging.getLogger(__name__)
LOOK_S: Final = 0.2
START_S: Final = 300.0  # for a process to start and to import the handler; its own limit begins after that
JOBS_PER_HAND: Final = 200
GROWN_KIB: Final = 512 << 10
FOREIGN: Final = "a message that is not of this job was in the pipe of its process; did a handler fork?"
_spawn = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Task:
    """What a process is given."""

    address: tuple[str, str]
    inputs: tuple[Input, ...]
    params: dict[str, Any]
    job_id: str
    attempt: int
    scratch: Path
    memory_bytes: int | None
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


class PoolProcess:
    """One process, seen from the worker."""

    def __init__(self) -> None:
        self._pipe, far = _spawn.Pipe()
        self._process = _spawn.Process(target=serve, args=(far,), daemon=True, name="longshore-hand")
        self._process.start()
        far.close()
        self.jobs = 0
        self.fit = True  # may be used again

    def work(self, task: Task, time_limit_s: float, answer: Callable[[str, Any], Any], stop: threading.Event) -> Any:
        """Run one task; blocks. `answer` serves what the handler asks for on its way."""
        self.jobs += 1
        end = time.monotonic() + START_S
        try:
            self._pipe.send(task)
            while True:
                if stop.is_set():
                    raise Reasoned("interrupted", "the worker was stopped")
                if time.monotonic() > end:
                    raise Reasoned("handler_timeout", f"the handler took longer than {time_limit_s:g} s")
                if self._pipe.poll(LOOK_S):
                    kind, value = self._message(task)
                    if kind == "began":
                        end = time.monotonic() + time_limit_s
                        continue
                    if kind == "result":
                        self.fit = value[1] < GROWN_KIB and self.jobs < JOBS_PER_HAND
                        return value[0]
                    if kind == "error":
                        raise _error(*value)
                    self._pipe.send(answer(kind, value))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.join(5)
            raise Reasoned("handler_crash", f"the handler's process ended (exit {self._process.exitcode})") from None
        except pickle.PickleError:
            raise Reasoned("bad_result", "the handler returned what cannot be handed over") from None
        finally:
            self.fit = self.fit and self._process.is_alive()

    def _message(self, task: Task) -> tuple[str, Any]:
        """Receive a message of this task; anything else in the pipe is the end of the process."""
        try:
            token, pid, kind, value = self._pipe.recv()
        except (TypeError, ValueError):
            token, pid, kind, value = None, None, "", None
        if token != task.token or pid != self._process.pid:
            raise Reasoned("handler_crash", FOREIGN)
        return kind, value

    @property
    def is_ready(self) -> bool:
        """Return whether the process can take a task: it is alive and its pipe holds no unread message."""
        try:
            return self._process.is_alive() and not self._pipe.poll()
        except OSError:
            return False

    def end(self) -> None:
        """Kill the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


class ProcessPool:
    """The processes of one worker."""

    def __init__(self) -> None:
        self._idle: queue.SimpleQueue[PoolProcess] = queue.SimpleQueue()

    def work(self, task: Task, time_limit_s: float, answer: Callable[[str, Any], Any], stop: threading.Event) -> Any:
        """Run one task on an idle process, or a new one."""
        hand = self._ready()
        clean = False
        try:
            result = hand.work(task, time_limit_s, answer, stop)
            clean = True
            return result
        except JobFailed:
            clean = True
            raise
        finally:
            if clean and hand.fit:
                self._idle.put(hand)
            else:
                hand.end()

    def _ready(self) -> PoolProcess:
        while True:
            try:
                hand = self._idle.get_nowait()
            except queue.Empty:
                return PoolProcess()
            if hand.is_ready:
                return hand
            log.warning("a handler's process is ended: it died, or wrote something when it had nothing to do")
            hand.end()

    def close(self) -> None:
        """End all processes."""
        while True:
            try:
                self._idle.get_nowait().end()
            except queue.Empty:
                return


def _error(kind: str, message: str, again: bool, trace: str) -> Exception:
    if kind == "JobFailed":
        return JobFailed(message, again=again)
    if kind == "EffectInDoubt":
        return EffectInDoubt(message)
    if kind == "bad_result":
        return Reasoned("bad_result", message)
    return HandlerError(kind, trace)


class HandlerError(Exception):
    """The handler raised; its traceback is for the log only."""

    def __init__(self, kind: str, trace: str) -> None:
        super().__init__(kind)
        self.kind, self.trace = kind, trace


# ── inside the process ──


class RemoteContext:
    """`ctx` in a process: asks the worker for everything."""

    def __init__(self, pipe: Connection, task: Task) -> None:
        self._pipe, self._token, self._pid = pipe, task.token, os.getpid()
        self._lock = threading.Lock()  # a request and its answer belong together
        self.over = False
        self.job_id, self.attempt, self.scratch = task.job_id, task.attempt, task.scratch

    def progress(self, done: int, total: int | None = None) -> None:
        """Report progress; raise Stopped if the job should stop."""
        if self._ask("progress", (done, total)):
            raise Stopped

    def check(self) -> None:
        """Raise if the job was canceled or the worker has to stop."""
        if self._ask("check", None):
            raise Stopped

    def effect(
        self, kind: str, act: Callable[[], dict[str, Any]], *, effect_class: str = "keyed", **extras: Any
    ) -> dict[str, Any]:
        """Perform an external effect at most once, as far as that can be known; return its result, new or recorded."""
        state, result = self._ask("effect_begin", (kind, effect_class, extras))
        if state == "confirmed":
            return dict(result or {})
        if state == "in_doubt":
            raise EffectInDoubt(f"the effect {kind} may or may not have happened")
        done = act()
        self._ask("effect_confirm", (kind, extras, done))
        return done

    def _ask(self, kind: str, value: object) -> Any:
        if os.getpid() != self._pid:
            raise RuntimeError("ctx cannot be used in a child process of the handler")
        with self._lock:
            if self.over:
                raise RuntimeError("ctx was used after the end of its job")
            self.send(kind, value)
            answer = self._pipe.recv()
        if isinstance(answer, LongshoreError):
            raise answer
        return answer

    def send(self, kind: str, value: object) -> None:
        """Write one message of this task."""
        self._pipe.send((self._token, self._pid, kind, value))

    def finish(self, kind: str, value: object) -> None:
        """Write the last message of this task; a thread that the handler left behind can write none after it."""
        with self._lock:
            self.over = True
            self.send(kind, value)


class Stopped(BaseException):
    """Unwinds a handler that should stop."""


def serve(pipe: Connection) -> None:
    """Run tasks until the worker is gone."""
    os.register_at_fork(after_in_child=pipe.close)
    _print_to_stderr()
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        context = RemoteContext(pipe, task)
        context.finish(*_attempt(context, task))


def _print_to_stderr() -> None:
    """Send what handlers print to stderr: stdout belongs to the program that started the worker."""
    sys.stdout.flush()
    os.dup2(2, 1)
    sys.stdout = sys.stderr


def _attempt(context: RemoteContext, task: Task) -> tuple[str, Any]:
    try:
        if task.memory_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (task.memory_bytes, task.memory_bytes))
        function = _function(task.address)
        context.send("began", None)
        value = _call(function, context, task)
        results = [_spooled(result, place, task.scratch) for place, result in enumerate(as_results(value))]
    except JobFailed as error:
        return "error", ("JobFailed", error.message, error.again, "")
    except EffectInDoubt as error:
        return "error", ("EffectInDoubt", str(error), False, "")
    except ValueError as error:
        kind = "bad_result" if isinstance(error, LongshoreError) else type(error).__name__
        return "error", (kind, str(error), True, traceback.format_exc())
    except (Exception, Stopped) as error:  # noqa: BLE001 -- whatever a handler raises is its answer
        return "error", (type(error).__name__, "", True, traceback.format_exc())
    return "result", (results, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _call(function: Callable[..., Any], context: RemoteContext, task: Task) -> Any:
    """Call the handler. A child that it forked comes back here, too: that one ends, and touches no file of the job."""
    pid = os.getpid()
    try:
        return function(list(task.inputs), task.params, context)
    finally:
        if os.getpid() != pid:
            os._exit(1)


def _function(address: tuple[str, str]) -> Callable[..., Any]:
    found: Any = importlib.import_module(address[0])
    for name in address[1].split("."):
        found = getattr(found, name)
    return found  # type: ignore[no-any-return]


def _spooled(result: Result, place: int, scratch: Path) -> Result:
    """Put a body into a file of the scratch directory, so that the pipe carries no bytes."""
    if isinstance(result.body, Path):
        return replace(result, body=Path(os.path.abspath(result.body)))
    body = scratch / f"result-{place}"
    body.write_bytes(result.body.encode() if isinstance(result.body, str) else result.body)
    return replace(result, body=body)
