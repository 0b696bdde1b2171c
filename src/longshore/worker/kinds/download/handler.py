"""One download, from a lease to an outcome. `acquire` is the whole story.

There is no `try` around it: the worker above owns that and asks the reason what follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from longshore import failpoints
from longshore.domain.model import Lease
from longshore.domain.outcomes import Outcome
from longshore.errors import Reasoned

if TYPE_CHECKING:
    from longshore.domain.settings import Settings
    from longshore.worker.event_reporter import EventReporter
    from longshore.worker.kinds.download.dedupe import StoredContent, UrlContent
    from longshore.worker.kinds.download.receive import Receiver
    from longshore.worker.kinds.download.url_turns import UrlTurns
    from longshore.worker.publisher import Publisher
    from longshore.worker.transfer_slots import TransferSlots

failpoints.declare("flow.begin", "flow.received", "flow.published")


class DownloadHandler:
    """Downloads: everything that `acquire` needs, made once per worker."""

    def __init__(
        self,
        known: StoredContent,
        receiver: Receiver,
        publisher: Publisher,
        transfer_slots: TransferSlots,
        turns: UrlTurns,
        settings: Settings,
        watch: EventReporter,
    ) -> None:
        self._known, self._receiver, self._publisher, self._turns = known, receiver, publisher, turns
        self._slots, self._settings, self._watch = transfer_slots, settings, watch

    async def acquire(self, lease: Lease) -> Outcome:
        """Get one artifact: adopt a published blob, reuse stored content, or fetch, verify and publish."""
        failpoints.hit("flow.begin")
        if lease.epoch > 1 and (adopted := await self._known.adopted(lease)):
            return adopted
        known = self._known.of(lease)
        if known and (known.is_fresh or self._settings.offline):
            return known.reused("fresh" if known.is_fresh else "offline")
        if self._settings.offline:
            raise Reasoned("offline", "offline, and these bytes are not stored")
        if await self._turns.take(lease):
            await self._known.prepare([lease])
            known = self._known.of(lease)
        if known and self._is_shared(lease, known):
            return known.reused("same_transfer")
        key = (lease.job_id, lease.epoch)
        async with self._slots.at(lease.job.request.host, lease.host_slots, key, self._receiver):
            self._watch.tell("started", lease)
            received = await self._receiver.receive(lease, known)
        failpoints.hit("flow.received")
        if received is None:
            assert known is not None  # only a conditional request is answered by 304
            return known.reused("revalidated")
        blob = await self._publisher.publish(lease, received.staged, received.record())
        failpoints.hit("flow.published")
        return received.completed(blob)

    def _is_shared(self, lease: Lease, known: UrlContent) -> bool:
        """Return whether the content came while the job waited for it, so that nothing is gained by asking again."""
        waited_since = self._turns.waited_since(lease)
        if waited_since is None or lease.job.retry_of is not None:
            return False
        return known.is_fresh or known.is_given_since(waited_since)
