"""The change feed over HTTP: read what a consumer has not acknowledged, acknowledge it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Annotated

from fastapi import Path, Query

from longshore.depot.change_feed import POLL_S, facts_of, read_changes
from longshore.ledger.operations.feed_consumers import feed_ack, feed_forget
from longshore.ledger.queries.feed import Change
from longshore.web.api.common import Limit, Serving, Wait, not_found, router
from longshore.web.api.models import AckIn, ChangePage, ConsumerOut
from longshore.web.cursors import PATTERN
from longshore.web.dashboard.render import stamp
from longshore.web.security.auth import Caller, Reader, Writer
from longshore.web.serializers import View
from longshore.web.service import Service

routes = router("feed", 404, 422)
Consumer = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


@routes.get("/feed/{consumer}", response_model=ChangePage, response_model_exclude_unset=True)
async def read_feed(
    consumer: Consumer,
    caller: Reader,
    service: Serving,
    limit: Limit = 100,
    after: Annotated[str | None, Query(pattern=PATTERN, description="a cursor; absent: what is acknowledged")] = None,
    wait: Wait = 0,
) -> View:
    """Return the artifacts that are new, changed or gone since what the consumer has acknowledged, or since a cursor.

    With `wait`, an empty answer is given only after that many seconds.
    """
    seq = None if after is None else service.cursors.read(caller.scope, after)
    if wait:
        service.waits.admit(caller)
    end = time.monotonic() + wait
    while True:
        page = await asyncio.to_thread(read_changes, service.ledger, caller.scope, consumer, after=seq, limit=limit)
        if page.changes or time.monotonic() >= end or service.closing.is_set():
            break
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(service.closing.wait(), POLL_S)
    return {
        "changes": [_view(service, caller, change) for change in page.changes],
        "cursor": service.cursors.seal(caller.scope, page.cursor),
        "more": page.more,
    }


@routes.post("/feed/{consumer}/ack", response_model=ConsumerOut)
async def acknowledge_changes(consumer: Consumer, body: AckIn, caller: Writer, service: Serving) -> View:
    """Acknowledge a change and all before it. The same again, or an earlier one, changes nothing."""
    seq = service.cursors.read(caller.scope, body.cursor)
    stands = await service.ledger.write_async(feed_ack, caller.scope, consumer, seq)
    return {"consumer": consumer, "cursor": service.cursors.seal(caller.scope, stands)}


@routes.delete("/feed/{consumer}", status_code=204)
async def forget_consumer(consumer: Consumer, caller: Writer, service: Serving) -> None:
    """Forget a consumer: its next read begins at the first change."""
    if not await service.ledger.write_async(feed_forget, caller.scope, consumer):
        raise not_found("consumer")


def _view(service: Service, caller: Caller, change: Change) -> View:
    cursor = service.cursors.seal(caller.scope, change.cursor)
    return {"change": change.kind, "cursor": cursor, "at": stamp(change.at), **facts_of(change)}
