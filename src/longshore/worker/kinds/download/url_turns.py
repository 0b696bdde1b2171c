"""One transfer per URL at a time: jobs that want what another one is fetching wait for it, and reuse its result.

Several jobs may name one URL (two works with the same file). Inside a process, the first of them is the leader. The
others hold their lease for `PATIENCE_S`, which is enough for a small file; then they go back to the queue as `url_busy`,
so that they hold no slot of the host, and come again when the leader has ended (`URL_BUSY_DELAY_S`; the leader
wakes them earlier). Between processes, a body that leaves memory asks the ledger whether another live lease is receiving
the same URL (`begin_streaming`); only large bodies pay for that query, and a job that was `url_busy` before queries first.

Shared are only requests with the same headers and login. Whether the bytes may be reused is decided as always
(`dedupe.known_content`); they need no second request, because the server was asked while the job waited.

Liveness: a leader ends like every job (deadline, stall, cancel, lost lease). If it ends without a result, no job waits for
this URL for `FREE_S`, so a host that fails each time costs no more than before.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from longshore.errors import LedgerError, Reasoned
from longshore.ledger.operations.cancel_retry import wake_waiting
from longshore.ledger.operations.url_transfers import BUSY, is_received_elsewhere
from longshore.worker.kinds.download.dedupe import ANEW

if TYPE_CHECKING:
    from longshore.domain.model import Lease, Micros, Scope
    from longshore.ledger import Ledger

PATIENCE_S: Final = 2.0
FREE_S: Final = 60.0
MOST: Final = 10_000  # jobs and URLs that are remembered
Key = tuple["Scope", str, tuple[tuple[str, str], ...], str]


@dataclass(slots=True)
class _Leader:
    """The job that fetches a URL."""

    ended: asyncio.Event | None = None  # made by the first job that waits; most leaders have none
    succeeded: bool = False
    has_sent_away: bool = False  # some went back to the queue


class UrlTurns:
    """The URLs that this process is fetching."""

    def __init__(self, ledger: Ledger, *, enabled: bool) -> None:
        self._ledger, self._enabled = ledger, enabled
        self._leaders: dict[Key, _Leader] = {}
        self._keys: dict[tuple[str, int], Key] = {}  # of the leaders
        self._since: dict[str, Micros] = {}  # when a job began to wait
        self._free: dict[Key, float] = {}  # URLs that no job waits for, until when
        self._waking: set[asyncio.Task[None]] = set()

    def waited_since(self, lease: Lease) -> Micros | None:
        """Return when a job began to wait for its URL; None if it did not."""
        return self._since.get(lease.job_id)

    async def take(self, lease: Lease) -> bool:
        """Wait while another job fetches the URL; return whether one has. Raise `url_busy` if that takes long."""
        request = lease.job.request
        if not self._enabled or request.params.get("fetch") == ANEW["fetch"] or not request.canonical_url:
            return False
        key = (lease.scope, request.canonical_url, request.headers, request.login)
        if key not in self._leaders and lease.job.reason != BUSY:
            self._lead(key, lease)
            return False
        if await self._waited(key, lease):
            return True
        if lease.job.reason == BUSY and await self._ledger.read_async(is_received_elsewhere, lease):
            raise _busy()
        self._lead(key, lease)
        return False

    async def _waited(self, key: Key, lease: Lease) -> bool:
        """Wait for the leader, if there is one; return whether it has a result."""
        leader = self._leaders.get(key)
        if leader is None or self._is_free(key):
            return False
        self._note(lease)
        try:
            leader.ended = leader.ended or asyncio.Event()
            async with asyncio.timeout(PATIENCE_S):
                await leader.ended.wait()
        except TimeoutError:
            leader.has_sent_away = True
            raise _busy() from None
        return leader.succeeded

    def _note(self, lease: Lease) -> None:
        if len(self._since) >= MOST:
            self._since.clear()
        self._since.setdefault(lease.job_id, self._ledger.now())

    def _lead(self, key: Key, lease: Lease) -> None:
        if key not in self._leaders:
            self._leaders[key], self._keys[lease.job_id, lease.epoch] = _Leader(), key

    def _is_free(self, key: Key) -> bool:
        return bool(self._free) and self._free.get(key, 0.0) > time.monotonic()

    def ended(self, lease: Lease, *, succeeded: bool) -> None:
        """Note the end of an attempt, after it was settled."""
        if succeeded and self._since:
            self._since.pop(lease.job_id, None)
        key = self._keys.pop((lease.job_id, lease.epoch), None)
        if key is None:
            return
        leader = self._leaders.pop(key)
        leader.succeeded = succeeded
        if not succeeded:
            if len(self._free) >= MOST:
                self._free.clear()
            self._free[key] = time.monotonic() + FREE_S
        if leader.ended is not None:
            leader.ended.set()
        if leader.has_sent_away:
            task = asyncio.get_running_loop().create_task(self._wake(lease.scope))
            self._waking.add(task)
            task.add_done_callback(self._waking.discard)

    async def _wake(self, scope: Scope) -> None:
        with suppress(LedgerError):  # they come by themselves soon
            await self._ledger.write_async(wake_waiting, scope, BUSY)


def _busy() -> Reasoned:
    return Reasoned(BUSY, "another job is fetching this URL; its result is waited for")
