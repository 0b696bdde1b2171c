"""Processes that run handlers: reused while they behave, killed when they hang, replaced when they die or grow.

A process talks to its worker through one pipe (`messages.py`): the task goes in, requests (progress, effects, shall I stop?)
and the result come out. Whatever happens to the process, the worker sees an end.

A process is kept for the next task, so a message must not be taken for the answer to another task. Each task has a random
token; every message carries the token and the PID of its sender, and a message with another one kills the process. A child
that a handler forks has no pipe: it is closed after the fork, and a child that returns from the handler is ended there.
"""

from __future__ import annotations

import importlib
import logging
import math
import multiprocessing
import os
import queue
import resource
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

from longshore.config.handler_environment import inherited, limit_environment
from longshore.errors import BadInput, EffectInDoubt, Reasoned
from longshore.worker.kinds.custom.job_types import Input, JobFailed, Result, as_results
from longshore.worker.kinds.custom.messages import (
    BadMessage,
    Channel,
    error_from,
    input_from,
    result_message,
    results_from,
)

log = logging.getLogger(__name__)
LOOK_S: Final = 0.2
START_S: Final = 300.0  # for a process to start and to import the handler; its own limit begins after that
JOBS_PER_HAND: Final = 200
GROWN_KIB: Final = 512 << 10
OPEN_FILES: Final = 1_024  # of a handler's process
FOREIGN: Final = "a message that is not of this job was in the pipe of its process; did a handler fork?"
GUARD: Final = "a script that declares job types and runs them needs `if __name__ == '__main__':` before what it runs"
_spawn = multiprocessing.get_context("spawn")


class JobFacts(NamedTuple):
    """What a handler may know of its job."""

    tenant_id: str
    project_id: str
    job_id: str
    run_id: str | None
    request_id: str | None


@dataclass(frozen=True, slots=True)
class Task:
    """What a process is given."""

    address: tuple[str, str]
    inputs: tuple[Input, ...]
    params: dict[str, Any]
    job: JobFacts
    attempt: int
    scratch: Path
    memory_bytes: int | None
    environment: tuple[str, ...] = ()
    cpu_s: int | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


class PoolProcess:
    """One process, seen from the worker."""

    def __init__(self) -> None:
        pipe, far = _spawn.Pipe()
        self._channel = Channel(pipe)
        self._process = _spawn.Process(target=serve, args=(far,), daemon=True, name="longshore-hand")
        self._process.start()
        far.close()
        self.jobs = 0
        self.fit = True  # may be used again

    def work(self, task: Task, time_limit_s: float, answer: Callable[[str, Any], Any], stop: threading.Event) -> Any:
        """Run one task; blocks. `answer` serves what the handler asks for on its way."""
        self.jobs += 1
        end, begun = time.monotonic() + START_S, False
        try:
            self._channel.send(asdict(task))
            while True:
                if stop.is_set():
                    raise Reasoned("interrupted", "the worker was stopped")
                if time.monotonic() > end:
                    raise Reasoned("handler_timeout", f"the handler took longer than {time_limit_s:g} s")
                message = self._channel.receive(LOOK_S)
                if message is None:
                    continue
                match self._of_task(task, message):
                    case "began", _:
                        end, begun = time.monotonic() + time_limit_s, True
                    case "result", [made, int() as resident_kib]:
                        self.fit = resident_kib < GROWN_KIB and self.jobs < JOBS_PER_HAND
                        return results_from(made)
                    case "error", [str() as kind, str() as text, bool() as again, str() as trace, code]:
                        raise _error(kind, text, again, trace, code)
                    case kind, value:
                        self._channel.send(answer(kind, value))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.join(5)
            why = "" if begun else f" before it began; {GUARD}"
            raise Reasoned(
                "handler_crash", f"the handler's process ended (exit {self._process.exitcode}){why}"
            ) from None
        except BadInput:  # a message, or what it holds
            raise Reasoned("handler_crash", FOREIGN) from None
        finally:
            self.fit = self.fit and self._process.is_alive()

    def _of_task(self, task: Task, message: object) -> tuple[str, Any]:
        """Return kind and value of a message of this task; anything else in the pipe is the end of the process."""
        match message:
            case [task.token, self._process.pid, str() as kind, value]:
                return kind, value
        raise BadMessage("it is not of this task")

    @property
    def is_ready(self) -> bool:
        """Return whether the process can take a task: it is alive and its pipe holds no unread message."""
        try:
            return self._process.is_alive() and self._channel.is_quiet
        except OSError:
            return False

    def end(self) -> None:
        """Kill the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self._channel.close()


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


def _error(kind: str, message: str, again: bool, trace: str, code: Any) -> Exception:
    if kind == "JobFailed":
        return JobFailed(message, code=code, retryable=again)
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

    def __init__(self, channel: Channel, task: Task) -> None:
        self._channel, self._token, self._pid = channel, task.token, os.getpid()
        self._lock = threading.Lock()  # a request and its answer belong together
        self.over = False
        self.tenant_id, self.project_id, self.job_id, self.run_id, self.request_id = task.job
        self.attempt, self.scratch = task.attempt, task.scratch

    def progress(self, done: int, total: int | None = None) -> None:
        """Report progress; raise Stopped if the job should stop."""
        if self._ask("progress", (int(done), None if total is None else int(total))):
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
        try:
            self._ask("effect_confirm", (kind, extras, done))
        except BadMessage as error:
            self._ask("effect_unstorable", (kind, extras, str(error)))
        return done

    def _ask(self, kind: str, value: object) -> Any:
        if os.getpid() != self._pid:
            raise RuntimeError("ctx cannot be used in a child process of the handler")
        with self._lock:
            if self.over:
                raise RuntimeError("ctx was used after the end of its job")
            self.send(kind, value)
            answer = self._channel.wait()
        if "error" in answer:
            raise error_from(answer["error"])
        return answer["value"]

    def send(self, kind: str, value: object) -> None:
        """Write one message of this task."""
        self._channel.send((self._token, self._pid, kind, value))

    def finish(self, kind: str, value: object) -> None:
        """Write the last message of this task; a thread that the handler left behind can write none after it."""
        with self._lock:
            self.over = True
            try:
                self.send(kind, value)
            except BadMessage as error:
                self.send("error", ("bad_result", f"the result cannot be handed over: {error}", False, "", None))


class Stopped(BaseException):
    """Unwinds a handler that should stop."""


def serve(pipe: Connection) -> None:
    """Run tasks until the worker is gone."""
    os.register_at_fork(after_in_child=pipe.close)
    _print_to_stderr()
    channel, variables = Channel(pipe), inherited()
    while True:
        try:
            task = task_from(channel.wait())
        except (EOFError, OSError):
            return
        limit_environment(variables, task.environment)
        context = RemoteContext(channel, task)
        context.finish(*_attempt(context, task))


def task_from(value: dict[str, Any]) -> Task:
    """Return a task as the worker wrote it."""
    module, name = value["address"]
    inputs = tuple(input_from(one) for one in value["inputs"])
    made = {
        "address": (module, name),
        "inputs": inputs,
        "job": JobFacts(*value["job"]),
        "scratch": Path(value["scratch"]),
    }
    return Task(**{**value, **made})


def _print_to_stderr() -> None:
    """Send what handlers print to stderr: stdout belongs to the program that started the worker."""
    sys.stdout.flush()
    os.dup2(2, 1)
    sys.stdout = sys.stderr


def _attempt(context: RemoteContext, task: Task) -> tuple[str, Any]:
    try:
        _limit_resources(task)
        function = _function(task.address)
        context.send("began", None)
        value = _call(function, context, task)
        made = enumerate(as_results(value))
        results = [result_message(_spooled(result, place, task.scratch)) for place, result in made]
    except JobFailed as error:
        return "error", ("JobFailed", error.message, error.again, "", error.code)
    except EffectInDoubt as error:
        return "error", ("EffectInDoubt", str(error), False, "", None)
    except BadInput as error:
        return "error", ("bad_result", str(error), True, traceback.format_exc(), None)
    except (Exception, Stopped) as error:  # noqa: BLE001 -- whatever a handler raises is its answer
        return "error", (type(error).__name__, "", True, traceback.format_exc(), None)
    return "result", (results, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _limit_resources(task: Task) -> None:
    """Set the limits of one task. Only the soft ones: the next task of this process may have others."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = None if task.cpu_s is None else math.ceil(used.ru_utime + used.ru_stime) + task.cpu_s
    limits = {
        resource.RLIMIT_AS: task.memory_bytes,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in limits.items():
        hard = resource.getrlimit(kind)[1]
        soft = hard if limit is None else limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (soft, hard))


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
