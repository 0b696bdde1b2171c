"""Everything a worker needs, made for one event loop and taken apart again."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from longshore.domain.notes import Listener
from longshore.domain.states import DOWNLOAD
from longshore.engine.berths import Berths
from longshore.engine.descriptors import within_the_limit
from longshore.engine.errands import Tools
from longshore.engine.flow import Flow
from longshore.engine.handlers import Handlers
from longshore.engine.known import Known
from longshore.engine.liveness import Liveness
from longshore.engine.own.handler import OwnJobs
from longshore.engine.publisher import Publisher
from longshore.engine.receive import Receiver
from longshore.engine.watch import Watch
from longshore.ledger.sweeping import release_dead
from longshore.threads import Threads
from longshore.transfer import Transfer

if TYPE_CHECKING:
    from longshore.domain.addresses import NetworkPolicy
    from longshore.domain.limits import TransferSettings
    from longshore.domain.politeness import HostDefaults
    from longshore.domain.settings import EngineSettings
    from longshore.ledger import Ledger
    from longshore.store import Store

STORE_THREADS: Final = 6
WAITING_BYTES: Final = 48 << 20  # bodies in memory beyond which no new transfer begins
PROGRESS_S: Final = 0.5
OWN_AT_ONCE: Final = max(2, os.cpu_count() or 2)


@dataclass(frozen=True, slots=True)
class Yard:
    """What a depot has for all its workers."""

    ledger: Ledger
    store: Store
    engine: EngineSettings
    transfer: TransferSettings
    policy: NetworkPolicy
    hosts: HostDefaults
    liveness: Liveness
    reconcile: Callable[[bool], object]
    scratch: Path  # where handlers of own types may write
    equip: Callable[[Handlers, Yard, ThreadPoolExecutor], None] | None = None  # adds further types of jobs


@asynccontextmanager
async def crew(yard: Yard, listener: Listener | None, *, details: bool = True) -> AsyncIterator[Tools]:
    """Make the tools of one worker in the running loop; without `details` its notes say what is counted, no more."""
    threads = Threads(STORE_THREADS, "longshore-store").begun()
    (settings, limits), ledger, store = within_the_limit(yard.engine, yard.transfer), yard.ledger, yard.store
    watch = Watch(ledger.now, store.path, listener, details=details)
    async with Transfer(limits, yard.policy) as transfer:
        berths = Berths(settings.concurrency, breaker_failures=yard.hosts.breaker_failures)
        publisher = Publisher(ledger, store, threads, items=settings.batch_items, size=settings.batch_bytes)
        publisher.on_change = lambda waiting: berths.close() if waiting > WAITING_BYTES else berths.open()
        publisher.more_come = lambda: berths.busy
        known = Known(ledger, store, threads, settings.dedupe)
        receiver = Receiver(ledger, store, transfer, threads, settings, yard.hosts, berths)
        berths.moved, berths.stop = receiver.moved, receiver.give_way
        handlers = Handlers()
        handlers.add(DOWNLOAD, Flow(known, receiver, publisher, berths, settings, watch).acquire, known.prepare)
        own = OwnJobs(ledger, store, publisher, yard.scratch / yard.liveness.owner, at_once=OWN_AT_ONCE)
        for name in own.types:
            handlers.add(name, own.handle)
        if yard.equip:
            yard.equip(handlers, yard, threads)
        ticking = asyncio.get_running_loop().create_task(_report_progress(receiver, watch)) if listener else None
        try:
            yield Tools(
                ledger=ledger,
                handlers=handlers,
                hosts=yard.hosts,
                settings=settings,
                owner=yard.liveness.owner,
                watch=watch,
                clean=publisher.clean,
                full=store.full,
                bury=lambda: bury(yard),
                reconcile=yard.reconcile,
                turn_away=berths.turn_away,
                berths=berths,
            )
            await publisher.idle()
        finally:
            if ticking:
                ticking.cancel()
            await asyncio.to_thread(own.close)
            threads.shutdown(wait=True)


async def bury(yard: Yard) -> int:
    """Give back the leases of processes of this machine that are gone, then forget them."""
    dead = yard.liveness.dead()
    if not dead:
        return 0
    released = await yard.ledger.soon(release_dead, dead)
    for owner in dead:
        await asyncio.to_thread(shutil.rmtree, yard.scratch / owner, ignore_errors=True)
    yard.liveness.forget(dead)
    return released


async def _report_progress(receiver: Receiver, watch: Watch) -> None:
    """Tell how far large bodies are; small ones are over before anybody could read it."""
    while True:
        await asyncio.sleep(PROGRESS_S)
        for lease, sink in list(receiver.active.values()):
            watch.tell("progress", lease, bytes_done=sink.done_bytes, bytes_total=sink.total)
