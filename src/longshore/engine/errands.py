"""What a run is for, what it works with and what it came to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from longshore.domain.model import Lease, Scope
from longshore.domain.outcomes import Outcome

if TYPE_CHECKING:
    from longshore.domain.politeness import HostDefaults
    from longshore.domain.settings import EngineSettings
    from longshore.engine.berths import Berths
    from longshore.engine.handlers import Handlers
    from longshore.engine.watch import Watch
    from longshore.ledger import Ledger


class Cleaner(Protocol):
    """Takes away what an attempt left in staging."""

    def __call__(self, lease: Lease, *, done: bool = False) -> None:
        """Clean up after one attempt; `done`: the job is, too."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What a run is for."""

    scope: Scope | None = None  # None: every tenant
    job_ids: tuple[str, ...] | None = None
    job_types: tuple[str, ...] | None = None
    forever: bool = False
    max_wait_s: float | None = None  # how long to wait while nothing can be done
    limit: int | None = None  # end when so many jobs are over
    more: Callable[[], Sequence[str] | None] | None = None  # gives further job_ids that came; None: no more will


@dataclass(slots=True)
class Tally:
    """What a run came to."""

    completed: int = 0
    reused: int = 0
    failed: int = 0
    canceled: int = 0
    retried: int = 0
    lost: int = 0
    bytes: int = 0
    left: bool = False  # stopped with work left
    stopped_by: str | None = None  # what ended it before its time

    @property
    def over(self) -> int:
        """Jobs that ended for good in this run."""
        return self.completed + self.reused + self.failed + self.canceled


@dataclass(slots=True)
class Held:
    """A lease and the task that works on it."""

    lease: Lease
    task: asyncio.Task[None] | None = None
    stopped: Outcome | None = None  # why the task was stopped, if we did it
    lost: bool = False
    working: bool = False  # between the task's first step and its outcome: only then can it be interrupted

    @property
    def unwanted(self) -> bool:
        """Tell whether somebody said stop."""
        return self.lost or self.stopped is not None

    def stop(self, why: Outcome | None) -> None:
        """Stop the task; None: the lease is lost and nothing is written. Interrupts once: its cleaning up goes on."""
        before = self.unwanted
        self.lost = self.lost or why is None
        self.stopped = self.stopped or why
        if self.task is not None and self.working and not before:
            self.task.cancel()


@dataclass(slots=True)
class Tools:
    """What a worker works with; the depot makes it."""

    ledger: Ledger
    handlers: Handlers
    hosts: HostDefaults
    settings: EngineSettings
    owner: str
    watch: Watch
    clean: Cleaner  # after an attempt was settled
    full: Callable[[], str | None]  # why nothing can be written to the store's disk now
    bury: Callable[[], Awaitable[int]]  # give back the leases of processes that are gone
    reconcile: Callable[[bool], object]  # in a thread: compare rows and files, fully or only what costs little
    turn_away: Callable[[], None]  # a drain: whoever waits for a place gives up
    berths: Berths  # places for transfers
