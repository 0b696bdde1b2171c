"""The options, tools and result of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from longshore.domain.model import Lease, Scope
from longshore.domain.outcomes import Outcome

if TYPE_CHECKING:
    from longshore.domain.policy.leases_ahead import LeasesAhead
    from longshore.domain.settings import HostsSettings, Settings
    from longshore.ledger import Ledger
    from longshore.ledger.operations.stages import Progress
    from longshore.worker.event_reporter import EventReporter
    from longshore.worker.full_disk import FullDisk
    from longshore.worker.handlers import Handlers
    from longshore.worker.silent_transfers import SilentTransfers
    from longshore.worker.transfer_slots import TransferSlots


class Cleaner(Protocol):
    """Deletes the staged files of an attempt."""

    def __call__(self, lease: Lease, *, done: bool = False) -> None:
        """Clean up after one attempt; `done`: the job is, too."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run."""

    scope: Scope | None = None  # None: every tenant
    job_ids: tuple[str, ...] | None = None
    run_id: str | None = None  # only jobs of this run; needs a scope
    job_types: tuple[str, ...] | None = None
    forever: bool = False
    max_wait_s: float | None = None  # how long to wait while nothing can be done
    limit: int | None = None  # end after this many jobs
    more: Callable[[], Sequence[str] | None] | None = None  # returns newly arrived job ids; None: no more will follow


@dataclass(slots=True)
class RunResult:
    """The result of a run."""

    completed: int = 0
    reused: int = 0
    failed: int = 0
    canceled: int = 0
    retried: int = 0
    lost: int = 0
    bytes: int = 0
    left: bool = False  # stopped with work left
    stopped_by: str | None = None  # why it ended early

    @property
    def over(self) -> int:
        """Jobs that ended for good in this run."""
        return self.completed + self.reused + self.failed + self.canceled


@dataclass(slots=True)
class RunningLease:
    """A lease and the task that works on it."""

    lease: Lease
    task: asyncio.Task[None] | None = None
    stopped: Outcome | None = None  # why the task was stopped, if we did it
    lost: bool = False
    ending: bool = False  # its outcome is being written
    working: bool = False  # between the task's first step and its outcome: only then can it be interrupted

    @property
    def unwanted(self) -> bool:
        """Return whether the job should stop: its lease is lost or a stop was requested."""
        return self.lost or self.stopped is not None

    def stop(self, why: Outcome | None) -> None:
        """Stop the task; None: the lease is lost, so no outcome is written. Cancels once, so that cleanup finishes."""
        before = self.unwanted
        self.lost = self.lost or why is None
        self.stopped = self.stopped or why
        if self.task is not None and self.working and not before:
            self.task.cancel()


@dataclass(slots=True)
class WorkerContext:
    """A worker's tools, created by the depot."""

    ledger: Ledger
    handlers: Handlers
    hosts: HostsSettings
    settings: Settings
    ahead: LeasesAhead  # leases that may be held beyond the running ones, so that claims and publishing come in batches
    owner: str
    watch: EventReporter
    clean: Cleaner  # after an attempt was settled
    disk: FullDisk
    release_dead_owners: Callable[[], Awaitable[int]]  # release the leases of dead processes
    reconcile: Callable[[bool], object]  # in a thread: compare rows and files, fully or only quickly
    turn_away: Callable[[], None]  # for a drain: fail all transfers that wait for a slot
    transfer_slots: TransferSlots  # places for transfers
    silent: SilentTransfers
    workers: Callable[[], int]  # processes that share the queue, as far as known
    progress: Callable[[], Sequence[Progress]]  # of the large bodies under way
