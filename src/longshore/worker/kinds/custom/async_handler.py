"""Run an `async def` handler in the worker's event loop, within its time limit.

A handler is third-party code in our loop. It may raise anything, and it may ignore its cancellation. An exception that is not
an `Exception` would end the job's task, or the whole loop, without an outcome, so every one becomes a `HandlerError`. Only a
cancellation that comes from outside (a stop, a lost lease) is passed on.

A task cannot be killed: `cancel` only raises CancelledError in its coroutine, and a handler that catches it goes on. So the
coroutine is wrapped, and after a grace period the wrapper no longer resumes it. If the task waits for something that never
ends (a task of the handler that ignores its own cancellation), it is left behind; `end_tasks` keeps such a task from blocking
the end of the loop. A handler that blocks the loop itself (`time.sleep`) cannot be ended by any of this.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Final

from longshore.errors import BadInput, EffectInDoubt, Reasoned
from longshore.worker.kinds.custom.handler_io import print_to_stderr
from longshore.worker.kinds.custom.job_types import JobFailed, Result, as_results
from longshore.worker.kinds.custom.process_pool import HandlerError

log = logging.getLogger(__name__)
GRACE_S: float = 3.0  # how long a canceled handler may clean up
_LAST_S: Final = 0.2  # for a task to notice that its coroutine was abandoned


async def run_async(function: Callable[..., Any], arguments: tuple[object, ...], time_limit_s: float) -> list[Result]:
    """Call a handler and return its results; raise what ends the attempt."""
    coroutine = Abandonable(_guarded(function, arguments))
    running = asyncio.get_running_loop().create_task(coroutine)
    try:
        async with asyncio.timeout(time_limit_s) as limit:
            await asyncio.wait([running])  # is not canceled when the handler cancels itself
        return as_results(running.result())
    except asyncio.CancelledError:
        if running.cancelled() and not _is_canceled():
            raise HandlerError("CancelledError", "the handler raised CancelledError") from None
        raise
    except TimeoutError:
        if not limit.expired():
            raise HandlerError("TimeoutError", traceback.format_exc()) from None
        raise Reasoned("handler_timeout", f"the handler took longer than {time_limit_s:g} s") from None
    except (JobFailed, Reasoned, EffectInDoubt, HandlerError):
        raise
    except BadInput as error:
        raise Reasoned("bad_result", str(error)) from None
    except BaseException as error:  # noqa: BLE001 -- third-party code may raise anything
        raise HandlerError(type(error).__name__, traceback.format_exc()) from None
    finally:
        if not running.done():
            await _end(running, coroutine)


async def _guarded(function: Callable[..., Awaitable[Any]], arguments: tuple[object, ...]) -> Any:
    """Call an async handler: what it prints goes to stderr, and what it raises ends its attempt, not the worker."""
    try:
        with print_to_stderr():
            return await function(*arguments)
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:  # noqa: BLE001 -- asyncio would end the loop, or the waiting task
        raise HandlerError(type(error).__name__, traceback.format_exc()) from None


async def _end(running: asyncio.Task[Any], coroutine: Abandonable) -> None:
    """Cancel a handler; abandon it if it is not over after the grace period."""
    await end_tasks([running], GRACE_S)
    if not running.done():
        log.error("an async handler ignored its cancellation for %g s and is abandoned", GRACE_S)
        coroutine.abandoned = True
        await end_tasks([running], _LAST_S)
    if running.done() and not running.cancelled():
        running.exception()  # retrieved, or asyncio would log it


async def end_tasks(tasks: Collection[asyncio.Task[Any]], grace_s: float) -> set[asyncio.Task[Any]]:
    """Cancel tasks and wait for their end, but not longer than the grace period; return those that go on."""
    if not tasks:
        return set()
    for task in tasks:
        task.cancel()
    _, pending = await asyncio.wait(tasks, timeout=grace_s)
    return pending


def _is_canceled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Abandonable(Coroutine[Any, Any, Any]):
    """A coroutine that can be stopped for good: once `abandoned`, it is closed instead of resumed."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner
        self.abandoned = False

    def send(self, value: Any) -> Any:
        """Resume the coroutine."""
        self._stop_if_abandoned()
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception in the coroutine."""
        self._stop_if_abandoned()
        return self._inner.throw(*error)

    def close(self) -> None:
        """Close the coroutine."""
        self._inner.close()

    def __await__(self) -> Any:
        """Return the iterator of the coroutine; a task does not use it."""
        return self._inner.__await__()

    def _stop_if_abandoned(self) -> None:
        if not self.abandoned:
            return
        try:
            self._inner.close()
        except BaseException as error:  # noqa: BLE001 -- it may ignore this, too; it is not resumed any more
            log.warning("an abandoned handler raised %s when it was closed", type(error).__name__)
        raise asyncio.CancelledError
