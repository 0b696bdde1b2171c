"""The depot: a ledger, a store and a configuration, and the public methods. This is the async core."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from longshore.config.credentials import logins
from longshore.depot import derived_settings
from longshore.depot.custom_jobs import Submitter
from longshore.depot.depot_context import DepotContext
from longshore.depot.get import Getter
from longshore.depot.maintenance.depot_methods import Maintenance
from longshore.depot.maintenance.reconcile import Reconciler
from longshore.depot.maintenance.retention import Retention
from longshore.depot.metadata import MetadataReader
from longshore.depot.owned_store import open_own_store
from longshore.depot.queries import Queries
from longshore.depot.runner import Runner
from longshore.depot.torrents import Torrents
from longshore.depot.uploads import Uploads
from longshore.domain.model import Scope
from longshore.domain.policy.leases_ahead import LeasesAhead
from longshore.errors import NoDepot, Unavailable
from longshore.ledger import Ledger
from longshore.ledger.ledger import is_postgres
from longshore.store.durability import filesystem
from longshore.worker.liveness import Liveness, new_owner
from longshore.worker.runtime import BATCH_ITEMS, Runtime

if TYPE_CHECKING:
    from longshore.config import Settings

P = ParamSpec("P")
T = TypeVar("T")
LIMITS_S: Final = 1.0  # how long "no limit" is cached, because every batch of small files queries it


class Limits:
    """A tenant's byte limit from the ledger, so that the store can reject early what the ledger would reject."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._free: dict[str, float] = {}  # tenants without a limit, and when that cache entry expires

    def __call__(self, tenant_id: str) -> int:
        """Return the limit; 0 means none."""
        now = time.monotonic()
        if self._free.get(tenant_id, 0.0) > now:
            return 0
        limit = self._ledger.budget(tenant_id)[0].bytes
        if not limit:
            self._free[tenant_id] = now + LIMITS_S
        return limit


class AsyncDepot:
    """One installation, opened. Use it as a context manager, sync or async.

    Each method belongs to one part: planning and running, `get`, custom jobs, queries, maintenance, uploads.
    """

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self.settings, self.runtime = settings, runtime
        self.ledger, self.store = runtime.ledger, runtime.store
        self.scope = Scope(settings.tenant, settings.project)
        self._closed, self._process = False, os.getpid()
        checked = self._checked
        depot = DepotContext(settings, runtime, self.ledger, self.store, self.scope)
        self.runner = runner = Runner(depot)
        self.add, self.run = checked(runner.add), checked(runner.run)
        self.notify, self.drain, self.abort = runner.notify, runner.drain, runner.abort
        self.get = checked(Getter(depot, runner).get)
        submitter = Submitter(depot, runner)
        self.submit, self.replay = checked(submitter.submit), checked(submitter.replay)
        queries = Queries(depot, runner)
        self.status, self.jobs = checked(queries.status), checked(queries.jobs)
        self.artifacts, self.show = checked(queries.artifacts), checked(queries.show)
        self.failures, self.runs = checked(queries.failures), checked(queries.runs)
        self.cancel, self.retry = checked(queries.cancel), checked(queries.retry)
        self.feed, self.feed_blocking = checked(queries.feed), checked(queries.feed_blocking)
        maintenance = Maintenance(depot)
        self.verify, self.reconcile = checked(maintenance.verify), checked(maintenance.reconcile)
        self.gc, self.place = checked(maintenance.gc), checked(maintenance.place)
        self.prove = checked(maintenance.prove)
        self.place_blocking = checked(maintenance.place_blocking)
        self.delete, self.backfill = checked(maintenance.delete), checked(maintenance.backfill)
        self.torrents = Torrents(depot, checked)
        self.metadata = checked(MetadataReader(depot).metadata)
        uploads = Uploads(depot)
        self.put, self.adopt = checked(uploads.put), checked(uploads.adopt)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        create: bool = True,
        store_lost: bool = False,
        **flags: Any,
    ) -> Self:
        """Open a depot, by default creating it; with `store_lost`, start a new store for an existing ledger."""
        if settings is None:
            from longshore.config import load_settings

            settings = load_settings(path, **flags)
        return cls(settings, open_runtime(settings, create=create, store_lost=store_lost))

    def close(self) -> None:
        """Finish queued writes and release all resources; calling it twice is harmless.

        In a forked child nothing is released: locks and connections are the parent's.
        """
        if not self._closed and os.getpid() == self._process:
            self._closed = True
            self.ledger.close()
            self.store.close()
            self.runtime.liveness.release()

    def _checked(self, method: Callable[P, T]) -> Callable[P, T]:
        """Return a method that refuses to work on a closed depot, and in a forked child, where it would hang."""

        @wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if self._closed:
                raise Unavailable("this depot is closed", hint="open it again")
            if os.getpid() != self._process:
                raise Unavailable(
                    f"this depot was opened by process {self._process} and cannot be used after a fork",
                    hint="open a depot in the child process, or start it with the method 'spawn'",
                )
            return method(*args, **kwargs)

        return call

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def open_runtime(settings: Settings, *, create: bool, store_lost: bool = False) -> Runtime:
    """Open ledger and store; without `create` the depot must exist."""
    directory = Path(settings.depot)
    where = derived_settings.ledger_place(settings)
    if lost := derived_settings.lost_ledger(settings):
        raise lost
    if create:
        filesystem.make_root(directory)
    elif isinstance(where, Path) and not where.exists():
        raise NoDepot(f"no depot at {directory}")
    ledger = Ledger.open(where, create=create and not is_postgres(where))  # a server's schema is made by `migrate`
    try:
        store = open_own_store(settings, ledger, anew=store_lost)
    except BaseException:
        ledger.close()
        raise
    ledger.backend.budget, ledger.backend.logins = settings.quota.budget(), logins(settings)
    store.count_by(lambda tenant: ledger.budget(tenant)[1].bytes, Limits(ledger))
    liveness = Liveness(directory / "alive", new_owner())
    retention = Retention(ledger, store, settings.retention, directory)
    reconciler = Reconciler(ledger, store, settings.reconcile, directory, retention)
    return Runtime(
        ledger=ledger,
        store=store,
        settings=settings,
        ahead=leases_ahead(settings),
        policy=derived_settings.network_policy(settings),
        hosts=derived_settings.hosts_with_profiles(settings),
        liveness=liveness,
        reconcile=reconciler.keep_house,
        scratch=directory / "scratch",
    )


def leases_ahead(settings: Settings) -> LeasesAhead:
    """Return how many leases a worker claims beyond the running jobs: leases are cheap, but block other workers.

    On one machine all workers share disk and CPU anyway: claim as many as fill one batch of the publisher. With more,
    the threads of the process only contend (ADR 6). On several machines the worker's pace decides.
    """
    place, at_once = derived_settings.ledger_place(settings), settings.transfer.concurrency
    most = max(3 * at_once, min(31 * at_once, BATCH_ITEMS - at_once))
    return LeasesAhead(3 * at_once if is_postgres(place) else most, most)
