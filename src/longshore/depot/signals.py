"""The first signal drains, the second aborts; both are safe."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from longshore.worker.loop import Worker

log = logging.getLogger(__name__)
COLLECT_AFTER: Final = 50_000  # container objects more than before
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def obeyed_by(worker: Worker, *, handle: bool) -> Iterator[None]:
    """Stop the worker on SIGINT and SIGTERM during the block; only the main thread can install handlers."""
    if not handle or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, seen = asyncio.get_running_loop(), list[signal.Signals]()

    def obey(number: signal.Signals) -> None:
        if seen:
            worker.abort()
        else:
            log.warning("%s: finishing or suspending running jobs; send the signal again to abort", number.name)
            worker.drain(number.name)
        seen.append(number)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        loop.add_signal_handler(number, obey, number)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])  # asyncio leaves its own defaults behind


@contextmanager
def rare_collections(*, ours: bool) -> Iterator[None]:
    """Run the garbage collector rarely during the block if no other code shares the process: a run makes few cycles."""
    if not ours:
        yield
        return
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
