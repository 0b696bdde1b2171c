"""The change feed of a depot: read what a consumer has not acknowledged, acknowledge it.

Reading never moves a position, except past events that do not change an artifact. So a consumer that crashes between applying a change
and acknowledging it gets the change again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from longshore.domain.model import Scope
from longshore.domain.policy.redaction import safe_url
from longshore.errors import BadInput
from longshore.ledger import Ledger
from longshore.ledger.operations.feed_consumers import feed_ack, feed_forget
from longshore.ledger.queries.feed import Change, FeedPage, check_consumer, feed_after, feed_position

PAGE: Final = 500
POLL_S: Final = 0.4


def read_changes(
    ledger: Ledger, scope: Scope, consumer: str, *, after: int | None = None, limit: int = PAGE
) -> FeedPage:
    """Return the next changes after a position, by default after what the consumer has acknowledged."""
    acked = ledger.read(feed_position, scope, consumer) if after is None else None
    seq = after if after is not None else acked or 0
    while True:
        page = ledger.read(feed_after, scope, seq, limit)
        if page.changes or not page.more:
            return page
        seq = page.cursor
        if acked is not None and not ledger.frozen:  # nothing before is unread: do not read it again next time
            ledger.write(feed_ack, scope, consumer, seq)


def facts_of(change: Change) -> dict[str, Any]:
    """Return what may be shown of a change: no place in the store, no secret of a URL."""
    facts: dict[str, Any] = {
        "artifact_id": change.artifact_id,
        "artifact_type": change.artifact_type,
        "sha256": change.sha256,
    }
    if (artifact := change.artifact) is None:
        return facts
    return facts | {
        "url": _shown(change.url),
        "work_id": _shown(change.work_id),
        "content_type": artifact.content_type,
        "size_bytes": artifact.size_bytes,
        "name": artifact.name,
        "metadata": artifact.metadata,
        "availability": artifact.availability,
        "previous_id": artifact.previous_id,
        "job_id": artifact.created_by_job_id,
    }


def _shown(text: str | None) -> str | None:
    return safe_url(text) if text and "://" in text else text


class Feed:
    """What one consumer has to learn. Iterating yields every change that is not acknowledged, then ends."""

    def __init__(self, ledger: Ledger, scope: Scope, consumer: str) -> None:
        self._ledger, self.scope, self.consumer = ledger, scope, check_consumer(consumer)

    def read(self, limit: int = PAGE, *, after: int | None = None) -> list[Change]:
        """Return the next changes after what is acknowledged, or after a cursor; none if there are none."""
        return self._page(limit, after).changes

    def ack(self, upto: Change | int) -> int:
        """Acknowledge a change and all before it, durably; again is harmless. Return where the consumer stands."""
        return self._ledger.write(feed_ack, self.scope, self.consumer, _cursor(upto))

    def forget(self) -> bool:
        """Forget the consumer: it begins again at the first change. Return whether it was known."""
        return self._ledger.write(feed_forget, self.scope, self.consumer)

    def follow(self, poll_s: float = POLL_S) -> Iterator[Change]:
        """Yield changes for ever: those that are there, then new ones as they come."""
        after: int | None = None
        while True:
            page = self._page(PAGE, after)
            yield from page.changes
            after = page.cursor
            if not page.more:
                time.sleep(poll_s)

    def __iter__(self) -> Iterator[Change]:
        after: int | None = None
        while True:
            page = self._page(PAGE, after)
            yield from page.changes
            after = page.cursor
            if not page.more:
                return

    def _page(self, limit: int, after: int | None) -> FeedPage:
        return read_changes(self._ledger, self.scope, self.consumer, after=after, limit=limit)


class AsyncFeed:
    """The same for async code."""

    def __init__(self, feed: Feed) -> None:
        self._feed, self.scope, self.consumer = feed, feed.scope, feed.consumer

    async def read(self, limit: int = PAGE, *, after: int | None = None) -> list[Change]:
        """Return the next changes after what is acknowledged, or after a cursor."""
        return await asyncio.to_thread(self._feed.read, limit, after=after)

    async def ack(self, upto: Change | int) -> int:
        """Acknowledge a change and all before it."""
        return await asyncio.to_thread(self._feed.ack, upto)

    async def forget(self) -> bool:
        """Forget the consumer."""
        return await asyncio.to_thread(self._feed.forget)

    async def follow(self, poll_s: float = POLL_S) -> AsyncIterator[Change]:
        """Yield changes for ever."""
        after: int | None = None
        while True:
            page = await asyncio.to_thread(self._feed._page, PAGE, after)
            for change in page.changes:
                yield change
            after = page.cursor
            if not page.more:
                await asyncio.sleep(poll_s)

    async def __aiter__(self) -> AsyncIterator[Change]:
        after: int | None = None
        while True:
            page = await asyncio.to_thread(self._feed._page, PAGE, after)
            for change in page.changes:
                yield change
            after = page.cursor
            if not page.more:
                return


def _cursor(upto: Change | int) -> int:
    if isinstance(upto, Change):
        return upto.cursor
    if type(upto) is not int:
        raise BadInput(f"a change or its cursor is acknowledged, not {type(upto).__name__}")
    return upto
