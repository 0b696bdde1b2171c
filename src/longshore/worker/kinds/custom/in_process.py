"""Run a plain handler in a thread of the worker (`isolation="none"`).

It costs no process and no messages, so it is for short jobs of code that the operator trusts as much as the program itself. It
is no boundary: the handler has the worker's memory, environment and rights, nothing can end it, and one that crashes the
interpreter takes the worker with it. Its time limit is only told: `ctx.check()` raises when the job should stop.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from longshore.errors import BadInput, EffectInDoubt, Reasoned
from longshore.worker.kinds.custom.handler_io import print_to_stderr
from longshore.worker.kinds.custom.job_types import JobFailed, Result, as_results
from longshore.worker.kinds.custom.process_pool import HandlerError


def run_here(function: Callable[..., Any], arguments: tuple[object, ...]) -> list[Result]:
    """Call a handler in this thread and return its results; raise what ends the attempt."""
    try:
        with print_to_stderr():
            return as_results(function(*arguments))
    except (JobFailed, Reasoned, EffectInDoubt):
        raise
    except BadInput as error:
        raise Reasoned("bad_result", str(error)) from None
    except BaseException as error:  # noqa: BLE001 -- third-party code may raise anything
        raise HandlerError(type(error).__name__, traceback.format_exc()) from None
