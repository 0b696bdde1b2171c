"""Types of jobs for the tests, at the top of a module so that other processes find them."""

from __future__ import annotations

import os
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


@longshore.job_type("t_slow", time_limit_s=600)
def slow(inputs: list[Input], params: dict[str, Any], ctx: Any) -> str:
    Path(params["here"]).touch()
    while not Path(params["go"]).exists():
        time.sleep(0.01)
        ctx.check()
    return "done"
