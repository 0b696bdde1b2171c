"""Create a worker's tools for one event loop, and close them again."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from longshore.domain.kinds import DOWNLOAD
from longshore.domain.model import Lease
from longshore.domain.run_events import Listener
from longshore.ledger.operations.make_claimable import release_dead
from longshore.thread_pool import Threads
from longshore.transfer import Transfer
from longshore.worker.event_reporter import EventReporter
from longshore.worker.full_disk import FullDisk
from longshore.worker.handlers import Handlers
from longshore.worker.kinds.custom.handler import CustomJobs
from longshore.worker.kinds.download.dedupe import StoredContent
from longshore.worker.kinds.download.handler import DownloadHandler
from longshore.worker.kinds.download.receive import Receiver
from longshore.worker.kinds.download.url_turns import UrlTurns
from longshore.worker.liveness import Liveness
from longshore.worker.open_files import within_the_limit
from longshore.worker.publisher import Publisher
from longshore.worker.run_types import Cleaner, WorkerContext
from longshore.worker.silent_transfers import SilentTransfers
from longshore.worker.transfer_slots import TransferSlots

if TYPE_CHECKING:
    from longshore.domain.policy.leases_ahead import LeasesAhead
    from longshore.domain.policy.network import NetworkPolicy
    from longshore.domain.settings import HostsSettings, Settings
    from longshore.ledger import Ledger
    from longshore.ledger.operations.stages import Progress
    from longshore.store import Store

STORE_THREADS: Final = 6
PROGRESS_S: Final = 0.5
BATCH_ITEMS: Final = 512  # bodies that are published together at the most
BATCH_BYTES: Final = 64 << 20
OWN_AT_ONCE: Final = max(2, os.cpu_count() or 2)


@dataclass(frozen=True, slots=True)
class Runtime:
    """The resources that a depot shares among its workers."""

    ledger: Ledger
    store: Store
    settings: Settings
    ahead: LeasesAhead  # leases a worker may hold beyond the running ones
    policy: NetworkPolicy
    hosts: HostsSettings
    liveness: Liveness
    reconcile: Callable[[bool], object]
    scratch: Path  # where handlers of own types may write
    equip: Callable[[Handlers, Runtime, ThreadPoolExecutor], None] | None = None  # adds further types of jobs


@asynccontextmanager
async def open_worker(
    runtime: Runtime, listener: Listener | None, *, details: bool = True
) -> AsyncIterator[WorkerContext]:
    """Make the tools of one worker in the running loop; without `details` its notes say what is counted, no more."""
    threads = Threads(STORE_THREADS, "longshore-store").begun()
    settings, files = within_the_limit(runtime.settings, BATCH_ITEMS)
    ledger, store = runtime.ledger, runtime.store
    watch = EventReporter(ledger.now, store.path, listener, details=details)
    async with Transfer(settings, runtime.policy, connections=files.connections) as transfer:
        transfer_slots = TransferSlots(
            settings.transfer.concurrency,
            breaker_failures=runtime.hosts.breaker_failures,
            unreachable_s=runtime.hosts.breaker_cooldown_s,
        )
        publisher = Publisher(ledger, store, threads, transfer_slots, items=files.batch_items, size=BATCH_BYTES)
        known = StoredContent(ledger, store, threads, settings.dedupe)
        turns = UrlTurns(ledger, enabled=settings.dedupe.reuse)
        receiver = Receiver(ledger, store, transfer, threads, settings, runtime.hosts, transfer_slots)
        handlers = Handlers()
        download = DownloadHandler(known, receiver, publisher, transfer_slots, turns, settings, watch)
        handlers.add(DOWNLOAD, download.acquire, known.prepare)
        own = CustomJobs(ledger, store, publisher, runtime.scratch / runtime.liveness.owner, at_once=OWN_AT_ONCE)
        for name in own.types:
            handlers.add(name, own.handle)
        if runtime.equip:
            runtime.equip(handlers, runtime, threads)
        ticking = asyncio.get_running_loop().create_task(_report_progress(receiver, watch)) if listener else None
        try:
            yield WorkerContext(
                ledger=ledger,
                handlers=handlers,
                hosts=runtime.hosts,
                settings=settings,
                ahead=replace(runtime.ahead),
                owner=runtime.liveness.owner,
                watch=watch,
                clean=_cleaner(publisher, turns),
                disk=FullDisk(ledger, store),
                release_dead_owners=lambda: release_dead_owners(runtime),
                reconcile=runtime.reconcile,
                turn_away=transfer_slots.turn_away,
                transfer_slots=transfer_slots,
                silent=SilentTransfers(receiver.waiting, receiver.last_byte),
                workers=lambda: max(settings.transfer.max_rate_shares, runtime.liveness.count()),
                progress=lambda: _progress(receiver),
            )
            await publisher.idle()
        finally:
            if ticking:
                ticking.cancel()
            await asyncio.to_thread(own.close)
            threads.shutdown(wait=True)


def _cleaner(publisher: Publisher, turns: UrlTurns) -> Cleaner:
    """Return what is called after each attempt, when its outcome is written."""

    def clean(lease: Lease, *, done: bool = False) -> None:
        turns.ended(lease, succeeded=done)
        publisher.clean(lease, done=done)

    return clean


async def release_dead_owners(runtime: Runtime) -> int:
    """Release the leases of dead processes on this machine, then remove their scratch directories and locks."""
    dead = runtime.liveness.dead()
    if not dead:
        return 0
    released = await runtime.ledger.write_async(release_dead, dead)
    for owner in dead:
        await asyncio.to_thread(shutil.rmtree, runtime.scratch / owner, ignore_errors=True)
    runtime.liveness.forget(dead)
    return released


def _progress(receiver: Receiver) -> list[Progress]:
    """Return how far the large bodies are."""
    return [(lease, sink.done_bytes, sink.total) for lease, sink in list(receiver.active.values())]


async def _report_progress(receiver: Receiver, watch: EventReporter) -> None:
    """Report the progress of large bodies periodically; small ones finish too quickly to report."""
    while True:
        await asyncio.sleep(PROGRESS_S)
        for lease, done, total in _progress(receiver):
            watch.tell("progress", lease, bytes_done=done, bytes_total=total)
