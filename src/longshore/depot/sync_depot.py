"""The synchronous façade: the same methods as the async core, each run to completion."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from longshore.depot.async_depot import AsyncDepot
from longshore.depot.torrents import SyncTorrents
from longshore.worker.kinds.custom.async_handler import end_tasks

if TYPE_CHECKING:
    from longshore.config import Settings

log = logging.getLogger(__name__)
GRACE_S: float = 3.0  # how long the tasks that a handler left may take to end
P = ParamSpec("P")
T = TypeVar("T")


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run to completion; in a separate thread if this one has a running loop (a notebook)."""
    if not _has_running_loop():
        return asyncio.run(_without_leftovers(work))
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _without_leftovers(work)).result()


def _has_running_loop() -> bool:
    """Return whether this thread runs a loop. (A function, so that no handled error is the context of later ones.)"""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _without_leftovers(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, then end the tasks that it left. `asyncio.run` would wait for ever for one that ignores that."""
    try:
        return await work
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            for task in await end_tasks(left, GRACE_S):
                log.error("a task of a handler ignored its cancellation for %g s and is left behind", GRACE_S)
                asyncio._unregister_task(task)  # documented for other implementations of tasks


def driven(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return the synchronous variant of a method of the async core."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return drive(method(*args, **kwargs))

    return call


class Depot:
    """One installation, opened; a context manager. `AsyncDepot` documents the methods."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        create: bool = True,
        store_lost: bool = False,
        **flags: Any,
    ) -> None:
        self.aio = AsyncDepot.open(path, settings=settings, create=create, store_lost=store_lost, **flags)
        self.settings, self.scope = self.aio.settings, self.aio.scope
        self.ledger, self.store = self.aio.ledger, self.aio.store
        self.add = driven(self.aio.add)
        self.get = driven(self.aio.get)
        self.run = driven(self.aio.run)
        self.verify = driven(self.aio.verify)
        self.reconcile = driven(self.aio.reconcile)
        self.place = self.aio.place_blocking
        self.prove = driven(self.aio.prove)
        self.submit = driven(self.aio.submit)
        self.replay = driven(self.aio.replay)
        self.cancel = driven(self.aio.cancel)
        self.retry = driven(self.aio.retry)
        self.status = driven(self.aio.status)
        self.jobs = driven(self.aio.jobs)
        self.artifacts = driven(self.aio.artifacts)
        self.show = driven(self.aio.show)
        self.failures = driven(self.aio.failures)
        self.runs = driven(self.aio.runs)
        self.gc = driven(self.aio.gc)
        self.feed = self.aio.feed_blocking
        self.torrents = SyncTorrents(self.aio.torrents, driven)
        self.delete = driven(self.aio.delete)
        self.backfill = driven(self.aio.backfill)
        self.put = driven(self.aio.put)
        self.adopt = driven(self.aio.adopt)

    def close(self) -> None:
        """Finish queued writes and release all resources."""
        self.aio.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_depot(path: str | os.PathLike[str] | None = None, *, create: bool = True, **settings: Any) -> Depot:
    """Open a depot (`longshore.open`), by default creating it; settings as in the file: `network={"allow": […]}`."""
    return Depot(path, create=create, **settings)
