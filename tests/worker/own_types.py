"""Types of jobs for the tests, at the top of a module so that other processes find them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

import longshore
from longshore import Input, JobFailed, Result


@longshore.job_type("t_upper")
def upper(inputs: list[Input], params: dict[str, Any], ctx: Any) -> Result:
    ctx.progress(1, 2)
    text = inputs[0].read_text().upper() + params.get("end", "")
    return Result(text, artifact_type="text", name="upper.txt", content_type="text/plain", metadata={"n": len(text)})


@longshore.job_type("t_async")
async def gather(inputs: list[Input], params: dict[str, Any], ctx: Any) -> dict[str, Any]:
    async def act() -> dict[str, Any]:
        with Path(params["log"]).open("a") as log:
            log.write("x")
        return {"id": 7}

    done = await ctx.effect("CALL", act, n=1)
    await ctx.progress(1)
    return {"total": sum(one.size_bytes for one in inputs), "id": done["id"]}


@longshore.job_type("t_many")
def many(inputs: list[Input], params: dict[str, Any], ctx: Any) -> list[Any]:
    large = ctx.scratch / "large.bin"
    large.write_bytes(b"z" * params["size"])
    return [b"one", b"one", large]


@longshore.job_type("t_sized")
def sized(inputs: list[Input], params: dict[str, Any], ctx: Any) -> Path:
    large = Path(ctx.scratch, "large.bin")
    with large.open("wb") as file:
        if params.get("sparse"):
            file.truncate(params["size"])
        else:
            file.write(os.urandom(params["size"]))
    return large


@longshore.job_type("t_bad", max_attempts=2)
def bad(inputs: list[Input], params: dict[str, Any], ctx: Any) -> object:
    match params["how"]:
        case "raise":
            raise ZeroDivisionError("secret-canary")
        case "say":
            raise JobFailed("the scan is empty", again=False)
        case "die":
            os._exit(9)
        case "garbage":
            return object()
    return None


@longshore.job_type("t_hang", time_limit_s=0.3, max_attempts=2)
def hang(inputs: list[Input], params: dict[str, Any], ctx: Any) -> None:
    time.sleep(600)


@longshore.job_type("t_memory", memory_bytes=2 << 30, max_attempts=1)
def memory(inputs: list[Input], params: dict[str, Any], ctx: Any) -> bytes:
    return b"x" * (4 << 30)


@longshore.job_type("t_forged", max_attempts=1, time_limit_s=30)
def forged(inputs: list[Input], params: dict[str, Any], ctx: Any) -> None:
    """Write a message past the checks of `ctx`."""
    ctx.send(params["kind"], params["value"])
    time.sleep(600)


@longshore.job_type("t_environment", environment=["T_DECLARED"])
def environment(inputs: list[Input], params: dict[str, Any], ctx: Any) -> dict[str, str]:
    return dict(os.environ)


def _limits() -> dict[str, int]:
    kinds = {"memory": "AS", "cpu_s": "CPU", "files": "NOFILE", "core": "CORE"}
    limits = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{kind}"))[0] for name, kind in kinds.items()}
    return limits | {"pid": os.getpid()}


@longshore.job_type("t_limits_small", memory_bytes=2 << 30, time_limit_s=100)
def limits_small(inputs: list[Input], params: dict[str, Any], ctx: Any) -> dict[str, int]:
    return _limits()


@longshore.job_type("t_limits")
def limits(inputs: list[Input], params: dict[str, Any], ctx: Any) -> dict[str, int]:
    return _limits()


_kept: list[bytearray] = []


@longshore.job_type("t_leak")
def leak(inputs: list[Input], params: dict[str, Any], ctx: Any) -> str:
    """Keep what is never given back; say in which process."""
    _kept.append(bytearray(b"x") * params["bytes"])
    return str(os.getpid())


@longshore.job_type("t_effect", max_attempts=3)
def effect(inputs: list[Input], params: dict[str, Any], ctx: Any) -> dict[str, Any]:
    """Act once, then die once: the second attempt must not act again."""

    def act() -> dict[str, Any]:
        with Path(params["log"]).open("a") as log:
            log.write("x")
        return {"charged": 5}

    done: dict[str, Any] = ctx.effect("CHARGE", act, order=params["order"])
    if ctx.attempt == 1:
        os._exit(3)
    return done


def _unstorable(params: dict[str, Any]) -> Any:
    with Path(params["log"]).open("a") as log:
        log.write("x")
    match params["how"]:
        case "nan":
            return {"x": float("nan")}
        case "big":
            return {"x": "y" * 5_000_000}
        case "object":
            return {"x": object()}
        case _:
            return [1]


@longshore.job_type("t_unstorable", max_attempts=2)
def unstorable(inputs: list[Input], params: dict[str, Any], ctx: Any) -> Any:
    return ctx.effect("SEND", lambda: _unstorable(params), effect_class=params["class"])


@longshore.job_type("t_unstorable_async", max_attempts=2)
async def unstorable_async(inputs: list[Input], params: dict[str, Any], ctx: Any) -> Any:
    async def act() -> Any:
        return _unstorable(params)

    return await ctx.effect("SEND", act, effect_class=params["class"])


@longshore.job_type("t_slow", time_limit_s=600)
def slow(inputs: list[Input], params: dict[str, Any], ctx: Any) -> str:
    Path(params["here"]).touch()
    while not Path(params["go"]).exists():
        time.sleep(0.01)
        ctx.check()
    return "done"


@longshore.job_type("t_fork", max_attempts=1, time_limit_s=30)
def fork(inputs: list[Input], params: dict[str, Any], ctx: Any) -> str:
    """Fork; the child comes back when a later job runs in this process."""
    child = ctypes.CDLL(None).fork() if params["how"] == "c" else os.fork()
    if child == 0:
        while not Path(params["go"]).exists():
            time.sleep(0.01)
        if params["how"] == "progress":
            ctx.progress(1, 1)
        os.makedirs(ctx.scratch, exist_ok=True)
        return "the child's"
    Path(params["child"]).write_text(str(child))
    return "the parent's"


@longshore.job_type("t_thread", max_attempts=1, time_limit_s=30)
def thread(inputs: list[Input], params: dict[str, Any], ctx: Any) -> str:
    """Leave a thread behind that uses `ctx` while a later job runs in this process."""

    def late() -> None:
        while not Path(params["go"]).exists():
            time.sleep(0.01)
        try:
            ctx.progress(1, 1)
        except RuntimeError as error:
            Path(params["child"]).write_text(str(error))

    threading.Thread(target=late, daemon=True).start()
    return "the parent's"


@longshore.job_type("t_echo", max_attempts=1, time_limit_s=30)
def echo(inputs: list[Input], params: dict[str, Any], ctx: Any) -> str:
    """Let what waits go on, wait until it is over, and answer."""
    if "go" in params:
        Path(params["go"]).touch()
        end = time.monotonic() + 10
        while not gone(Path(params["child"])) and time.monotonic() < end:
            time.sleep(0.01)
    return f"echo {params['n']}"


def gone(child: Path) -> bool:
    """Return whether the process whose number stands in a file is over; a text is one that is."""
    try:
        pid = child.read_text()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] if pid.isdigit() else "Z"
    except OSError:
        return child.exists()
    return bool(pid) and state == "Z"


def _odd(how: str, scratch: Path, away: str) -> object:
    file = scratch / "file"
    match how:
        case "fifo":
            os.mkfifo(file)
        case "link":
            file.symlink_to(away)
        case "folder":
            file.mkdir()
        case "linked folder":
            (scratch / "there").symlink_to(Path(away).parent)
            return scratch / "there" / Path(away).name
        case "outside":
            return Path(away)
        case "dots":
            return scratch / ".." / scratch.name / "file"
        case "infinite":
            return Result("x", metadata={"a": float("inf")})
        case "nul":
            return Result("x", metadata={"a": "\0"})
        case "header":
            return Result("x", content_type="text/plain\r\nX: y")
        case "long":
            return Result("x", artifact_type="a" * 5_000)
        case "body":
            return Result(5)  # type: ignore[arg-type]
        case "surrogate":
            return "\ud800"
    return file


@longshore.job_type("t_odd", max_attempts=3, time_limit_s=20)
def odd(inputs: list[Input], params: dict[str, Any], ctx: Any) -> object:
    return _odd(params["how"], ctx.scratch, params["away"])


@longshore.job_type("t_odd_async", max_attempts=3, time_limit_s=20)
async def odd_async(inputs: list[Input], params: dict[str, Any], ctx: Any) -> object:
    return _odd(params["how"], ctx.scratch, params["away"])


@longshore.job_type("t_below")
def below(inputs: list[Input], params: dict[str, Any], ctx: Any) -> Path:
    file = Path(ctx.scratch, "a", "b", "made.txt")
    file.parent.mkdir(parents=True)
    file.write_bytes(b"made")
    return file


@longshore.job_type("t_raise_async", max_attempts=2, time_limit_s=20)
async def raise_async(inputs: list[Input], params: dict[str, Any], ctx: Any) -> None:
    match params["how"]:
        case "cancel":
            raise asyncio.CancelledError
        case "self":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(60)
        case "exit":
            raise SystemExit(3)
        case "timeout":
            raise TimeoutError
        case "base":
            raise BaseException("unusual")  # noqa: TRY002 -- what a careless library raises
        case "own":
            raise Unusual
        case "close":
            raise GeneratorExit


class Unusual(BaseException):
    """Neither an Exception nor known to asyncio."""


async def _ignore_cancellation() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)


@longshore.job_type("t_swallow_async", max_attempts=1, time_limit_s=0.3)
async def swallow_async(inputs: list[Input], params: dict[str, Any], ctx: Any) -> None:
    Path(params["here"]).touch()
    if params["how"] == "child":
        await asyncio.ensure_future(_ignore_cancellation())
    await _ignore_cancellation()


@longshore.job_type("t_swallow_long", max_attempts=1, time_limit_s=600)
async def swallow_long(inputs: list[Input], params: dict[str, Any], ctx: Any) -> None:
    await swallow_async(inputs, params, ctx)


@longshore.job_type("t_chatty")
def chatty(inputs: list[Input], params: dict[str, Any], ctx: Any) -> str:
    print("printed by a process")
    os.write(1, b"written by a process\n")
    return "said"


@longshore.job_type("t_chatty_async")
async def chatty_async(inputs: list[Input], params: dict[str, Any], ctx: Any) -> str:
    print("printed in the loop")
    await asyncio.to_thread(print, "printed by a thread")
    return "said"


@longshore.job_type("t_inside", isolation="none", max_attempts=2)
def inside(inputs: list[Input], params: dict[str, Any], ctx: longshore.Context) -> Any:
    match params.get("how"):
        case "raise":
            raise ZeroDivisionError("secret-canary")
        case "exit":
            raise SystemExit(3)
        case "say":
            raise JobFailed("the scan is empty", code="scan.empty", retryable=False)
        case "garbage":
            return object()
        case "wait":
            Path(params["begun"]).touch()
            while True:
                ctx.check()
                time.sleep(0.01)
        case "nothing":
            return None
    ctx.progress(1, 2)
    done = ctx.effect("CALL", lambda: {"id": 7}, n=1)
    (ctx.scratch / "a.txt").write_text("scratch")
    return [Result(f"{os.getpid()} {done['id']}", name="pid.txt"), ctx.scratch / "a.txt"]
