"""The depot: a ledger, a store and a configuration, and the verbs that people use. This is the async core."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from longshore.depot import wiring
from longshore.depot.intake import Intake
from longshore.depot.keeping import Keeping
from longshore.depot.looking import Looking
from longshore.depot.reconciling import Reconciler
from longshore.depot.retention import Retention
from longshore.depot.shelves import open_own_store
from longshore.depot.submitting import Submitting
from longshore.domain.model import Scope
from longshore.domain.notes import Listener
from longshore.engine.crew import Yard
from longshore.engine.errands import Tally
from longshore.engine.liveness import Liveness, new_owner
from longshore.engine.worker import Worker
from longshore.errors import NoDepot
from longshore.ledger import Ledger
from longshore.store import disk

if TYPE_CHECKING:
    from longshore.config import Settings


LIMITS_S: Final = 1.0  # how long the answer "no limit" is believed: it is asked for with every batch of small files


class Limits:
    """How many bytes a tenant may hold, by the ledger. A store refuses early what the ledger would refuse at the end."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._free: dict[str, float] = {}  # tenants without a limit, and until when that is believed

    def __call__(self, tenant_id: str) -> int:
        """Give the limit; 0 is none."""
        now = time.monotonic()
        if self._free.get(tenant_id, 0.0) > now:
            return 0
        limit = self._ledger.budget(tenant_id)[0].bytes
        if not limit:
            self._free[tenant_id] = now + LIMITS_S
        return limit


class AsyncDepot(Submitting, Looking, Keeping, Intake):
    """One installation, opened. Use it as a context manager, sync or async."""

    def __init__(self, settings: Settings, yard: Yard) -> None:
        self.settings = settings
        self.yard = yard
        self.ledger, self.store = yard.ledger, yard.store
        self.scope = Scope(settings.tenant, settings.project)
        self.on_note: Listener | None = None  # hears of every run
        self._workers: set[Worker] = set()
        self._closed = False
        self.tally = Tally()

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
        """Open a depot, by default making it if there is none; with `store_lost`, begin a new store for an old ledger."""
        if settings is None:
            from longshore.config import load_settings

            settings = load_settings(path, **flags)
        return cls(settings, open_yard(settings, create=create, store_lost=store_lost))

    def close(self) -> None:
        """Finish what is queued and let go; closing twice is closing once."""
        if not self._closed:
            self._closed = True
            self.ledger.close()
            self.store.close()
            self.yard.liveness.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def open_yard(settings: Settings, *, create: bool, store_lost: bool = False) -> Yard:
    """Open ledger and store; without `create` there must be a depot already."""
    directory = Path(settings.depot)
    where = wiring.ledger_place(settings)
    if create:
        disk.make_root(directory)
    elif isinstance(where, Path) and not where.exists():
        raise NoDepot(f"there is no depot at {directory}")
    ledger = Ledger.open(where, create=create)
    try:
        store = open_own_store(settings, ledger, anew=store_lost)
    except BaseException:
        ledger.close()
        raise
    ledger.backend.budget = settings.quota.budget()
    store.count_by(lambda tenant: ledger.budget(tenant)[1].bytes, Limits(ledger))
    liveness = Liveness(directory / "alive", new_owner())
    engine = wiring.engine_settings(settings)
    retention = Retention(ledger, settings.retention, directory)
    reconciler = Reconciler(ledger, store, engine.reconcile, directory, retention)
    return Yard(
        ledger=ledger,
        store=store,
        engine=engine,
        transfer=wiring.transfer_settings(settings),
        policy=wiring.network_policy(settings),
        hosts=wiring.host_defaults(settings),
        liveness=liveness,
        reconcile=reconciler.keep_house,
        scratch=directory / "scratch",
    )
