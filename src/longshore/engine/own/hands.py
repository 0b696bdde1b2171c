"""Processes that run handlers: reused while they behave, killed when they hang, replaced when they die or grow.

A hand talks to its worker through one pipe: the task goes in, requests (progress, effects, shall I stop?) and the result
come out. Whatever happens to the process, the worker sees an end.
"""

from __future__ import annotations

import importlib
import multiprocessing
import pickle
import queue
import resource
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from longshore.engine.own.types import Input, JobFailed, Result, as_results
from longshore.errors import EffectInDoubt, LongshoreError, Reasoned

LOOK_S: Final = 0.2
START_S: Final = 300.0  # for a process to start and to import the handler; its own limit begins after that
JOBS_PER_HAND: Final = 200
GROWN_KIB: Final = 512 << 10
_spawn = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Task:
    """What a hand is given."""

    address: tuple[str, str]
    inputs: tuple[Input, ...]
    params: dict[str, Any]
    job_id: str
    attempt: int
    scratch: Path
    memory_bytes: int | None


class Hand:
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
                    kind, value = self._pipe.recv()
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

    def end(self) -> None:
        """Kill the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


class Hands:
    """The processes of one worker."""

    def __init__(self) -> None:
        self._idle: queue.SimpleQueue[Hand] = queue.SimpleQueue()

    def work(self, task: Task, time_limit_s: float, answer: Callable[[str, Any], Any], stop: threading.Event) -> Any:
        """Run one task on a free hand, or a new one."""
        try:
            hand = self._idle.get_nowait()
        except queue.Empty:
            hand = Hand()
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
    if kind == "bad_result":
        return Reasoned("bad_result", message)
    return HandlerError(kind, trace)


class HandlerError(Exception):
    """The handler raised; its traceback is for the log only."""

    def __init__(self, kind: str, trace: str) -> None:
        super().__init__(kind)
        self.kind, self.trace = kind, trace


# ── inside the process ──


class FarContext:
    """`ctx` in a process: asks the worker for everything."""

    def __init__(self, pipe: Connection, task: Task) -> None:
        self._pipe = pipe
        self.job_id, self.attempt, self.scratch = task.job_id, task.attempt, task.scratch

    def progress(self, done: int, total: int | None = None) -> None:
        """Say how far the work is; raise if it should stop."""
        if self._ask("progress", (done, total)):
            raise Stopped

    def check(self) -> None:
        """Raise if the job was canceled or the worker has to stop."""
        if self._ask("check", None):
            raise Stopped

    def effect(
        self, kind: str, act: Callable[[], dict[str, Any]], *, effect_class: str = "keyed", **extras: Any
    ) -> dict[str, Any]:
        """Do something to the outside at most once as far as anybody can know; give its result, new or remembered."""
        state, result = self._ask("effect_begin", (kind, effect_class, extras))
        if state == "confirmed":
            return dict(result or {})
        if state == "in_doubt":
            raise EffectInDoubt(f"the effect {kind} may or may not have happened")
        done = act()
        self._ask("effect_confirm", (kind, extras, done))
        return done

    def _ask(self, kind: str, value: object) -> Any:
        self._pipe.send((kind, value))
        answer = self._pipe.recv()
        if isinstance(answer, LongshoreError):
            raise answer
        return answer


class Stopped(BaseException):
    """Unwinds a handler that should stop."""


def serve(pipe: Connection) -> None:
    """Run tasks until the worker is gone."""
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(_attempt(pipe, task))


def _attempt(pipe: Connection, task: Task) -> tuple[str, Any]:
    try:
        if task.memory_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (task.memory_bytes, task.memory_bytes))
        function = _function(task.address)
        pipe.send(("began", None))
        value = function(list(task.inputs), task.params, FarContext(pipe, task))
        results = [_spooled(result, place, task.scratch) for place, result in enumerate(as_results(value))]
    except JobFailed as error:
        return "error", ("JobFailed", error.message, error.again, "")
    except ValueError as error:
        kind = "bad_result" if isinstance(error, LongshoreError) else type(error).__name__
        return "error", (kind, str(error), True, traceback.format_exc())
    except (Exception, Stopped) as error:  # noqa: BLE001 -- whatever a handler raises is its answer
        return "error", (type(error).__name__, "", True, traceback.format_exc())
    return "result", (results, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _function(address: tuple[str, str]) -> Callable[..., Any]:
    found: Any = importlib.import_module(address[0])
    for name in address[1].split("."):
        found = getattr(found, name)
    return found  # type: ignore[no-any-return]


def _spooled(result: Result, place: int, scratch: Path) -> Result:
    """Put a body into a file of the scratch directory, so that the pipe carries no bytes."""
    if isinstance(result.body, Path):
        body = result.body.resolve()
    else:
        body = scratch / f"result-{place}"
        body.write_bytes(result.body.encode() if isinstance(result.body, str) else result.body)
    return Result(
        body, result.artifact_type, result.name, result.content_type, result.schema_version, dict(result.metadata)
    )
