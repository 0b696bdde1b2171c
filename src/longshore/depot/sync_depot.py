"""The synchronous façade: the same methods as the async core, each run to completion."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from longshore.depot.async_depot import AsyncDepot
from longshore.depot.custom_jobs import Submitter
from longshore.depot.get import Getter
from longshore.depot.maintenance.depot_methods import Maintenance
from longshore.depot.queries import Queries
from longshore.depot.runner import Runner
from longshore.depot.torrents import SyncTorrents
from longshore.depot.uploads import Uploads
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


def driven(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Depot, P], T]:
    """Return the synchronous variant of a method of the async core, with its signature and documentation."""
    name = method.__name__

    @wraps(method)
    def call(self: Depot, /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Coroutine[Any, Any, T] = getattr(self.aio, name)(*args, **kwargs)
        return drive(work)

    return call


def bound(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return the synchronous variant of a method of an object."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return drive(method(*args, **kwargs))

    return call


def direct(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], name: str
) -> Callable[Concatenate[Depot, P], T]:
    """Return the variant of a method that works in the calling thread: `name` of the core does the same without a loop."""

    @wraps(method)
    def call(self: Depot, /, *args: P.args, **kwargs: P.kwargs) -> T:
        done: T = getattr(self.aio, name)(*args, **kwargs)
        return done

    return call


class Depot:
    """One installation, opened; a context manager. Its methods are those of `AsyncDepot`, each run to completion.

    `scope` is the tenant and project of the settings unless a call names another one.
    """

    add, run = driven(Runner.add), driven(Runner.run)
    get = driven(Getter.get)
    submit, replay = driven(Submitter.submit), driven(Submitter.replay)
    status, jobs, artifacts = driven(Queries.status), driven(Queries.jobs), driven(Queries.artifacts)
    show, failures, runs = driven(Queries.show), driven(Queries.failures), driven(Queries.runs)
    cancel, retry = driven(Queries.cancel), driven(Queries.retry)
    verify, reconcile = driven(Maintenance.verify), driven(Maintenance.reconcile)
    gc, prove = driven(Maintenance.gc), driven(Maintenance.prove)
    delete, backfill = driven(Maintenance.delete), driven(Maintenance.backfill)
    place = direct(Maintenance.place, "place_blocking")
    put, adopt = driven(Uploads.put), driven(Uploads.adopt)

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
        self.torrents = SyncTorrents(self.aio.torrents, bound)

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
