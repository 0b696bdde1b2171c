"""The first signal drains, the second aborts; both are safe."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from longshore.worker.loop import Worker

log = logging.getLogger(__name__)
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
