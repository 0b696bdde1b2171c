"""Wait for a full disk, and free it if parts of waiting jobs fill it.

While the disk is full no job is claimed, so no request is sent. The jobs whose parts fill it would wait for the space that
they take themselves. So if the disk stays full for `PATIENCE_S` (or half of the run's `max_wait_s`) while nothing on this
machine moves, parts are dropped, those of ended jobs first, then the oldest, until there is room; their jobs start from
zero. Nothing is dropped if all these parts together would not make room: then other data fills the disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from longshore import failpoints
from longshore.domain.kinds import TERMINAL, Status
from longshore.domain.policy.disk_space import LEAST_BYTES
from longshore.errors import LongshoreError, NotFound

if TYPE_CHECKING:
    from longshore.domain.model import Job
    from longshore.ledger import Ledger
    from longshore.store import PartFacts, Store

log = logging.getLogger(__name__)
failpoints.declare("disk.part")
PATIENCE_S: Final = 10.0  # how long a full disk is waited for before parts are dropped


class FullDisk:
    """Whether the store's disk is full."""

    def __init__(self, ledger: Ledger, store: Store) -> None:
        self._ledger, self._store = ledger, store
        self._since: float | None = None
        self._patience_s = PATIENCE_S
        self.full: bool | None = None  # None: not checked yet

    def wait_at_most(self, max_wait_s: float | None) -> None:
        """Drop parts earlier in a run that would give up before the disk is freed, or it would never be."""
        self._patience_s = PATIENCE_S if max_wait_s is None else min(PATIENCE_S, max_wait_s / 2)

    def look(self) -> None:
        """Check whether the disk is full, and log each change once."""
        try:
            why = self._store.full()
        except LongshoreError:
            return  # the next job reports a disk that cannot be checked
        if why and not self.full:
            self._since = time.monotonic()
            log.warning("the disk is full (%s): nothing is fetched until there is room; make some", why)
        elif self.full and not why:
            log.warning("the disk has free space again: work continues")
        self.full = why is not None

    async def has_room(self, *, idle: bool) -> bool:
        """Return whether jobs may be claimed; `idle`: this worker holds no lease that could free space."""
        if self.full is not False:
            self.look()
        if self.full and idle and self._since is not None and time.monotonic() - self._since >= self._patience_s:
            self._since = time.monotonic()
            if await asyncio.to_thread(self._make_room):
                self.look()
        return not self.full

    def _make_room(self) -> int:
        """Drop parts until there is room; return how many were dropped."""
        try:
            return self._dropped()
        except LongshoreError as error:
            log.warning("the full disk could not be freed: %s", error)
            return 0

    def _dropped(self) -> int:
        room, dropped = self._store.room(), 0
        parts = [(job, facts) for facts in list(self._store.parts()) if (job := self._job(facts)) is not None]
        if any(job.status is Status.PROCESSING for job, _ in parts):
            return 0
        lacking = max(LEAST_BYTES, room.floor_bytes + LEAST_BYTES - room.free_bytes)
        if sum(self._store.part_bytes(facts) for _, facts in parts) < lacking:
            return 0
        for job, facts in sorted(parts, key=lambda one: (one[0].status not in TERMINAL, one[0].updated_at)):
            if self._store.full() is None:
                break
            self._store.drop_part(facts)
            dropped += 1
            failpoints.hit("disk.part")
            if job.status not in TERMINAL:
                told = "the disk is full: the part of job %s was dropped to make room; it starts from zero"
                log.warning(told, job.job_id)
        return dropped

    def _job(self, facts: PartFacts) -> Job | None:
        """Return the job of a part; None for a part of a running upload or an import, which are not touched."""
        try:
            return self._ledger.job(facts.scope, facts.job_id)
        except NotFound:
            return None
