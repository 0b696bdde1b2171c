"""History as it is written: server-sent events that go on where they stopped (Last-Event-ID)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Query, Request
from starlette.responses import StreamingResponse

from longshore.domain.model import Scope
from longshore.domain.states import Status
from longshore.ledger import listing, lookup, tokens
from longshore.ledger.tx import Tx
from longshore.web.access import Caller, Reader
from longshore.web.api.routing import Serving, router
from longshore.web.problems import Problem
from longshore.web.service import Service
from longshore.web.stories import event_view

routes = router("events", 422)

BATCH = 500
LOOK_S = 0.4
ALIVE_S = 15.0
_NUMBER = re.compile(r"[0-9]{1,20}\Z")


@routes.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "An endless stream"}
    },
)
async def stream_events(
    request: Request,
    caller: Reader,
    service: Serving,
    after: Annotated[
        str | None, Query(max_length=20, pattern="^[0-9]+$", description="begin after this event; absent: now")
    ] = None,
    slim: Annotated[bool, Query(description="only id and kind")] = False,
    last_event_id: Annotated[str | None, Header(max_length=64)] = None,
) -> StreamingResponse:
    """Stream the events of this tenant and project."""
    token_id = caller.token.token_id
    if service.streams[token_id] >= service.settings.streams_per_token:
        raise Problem(
            429, "too_many_requests", "too many open event streams with this token", headers={"Retry-After": "5"}
        )
    start = last_event_id if last_event_id and _NUMBER.match(last_event_id) else after
    seq = int(start) if start else await service.ledger.read_soon(listing.last_event, caller.scope)
    return StreamingResponse(
        _events(service, caller, min(seq, (1 << 62) - 1), slim=slim),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


async def _events(service: Service, caller: Caller, seq: int, *, slim: bool) -> AsyncIterator[bytes]:
    token_id = caller.token.token_id
    service.streams[token_id] += 1
    said = ticked = time.monotonic()
    try:
        known = await service.ledger.read_soon(lookup.counts, caller.scope)
        yield b"retry: 2000\n: welcome\n\n"
        while not service.closing.is_set():
            alive, events, counted = await service.ledger.read_soon(_look, caller, seq)
            if not alive:
                return  # a stream outlives no token: whoever lost the right to read stops hearing
            for event in events:
                seq = max(seq, event.seq)
                yield _message(event, slim=slim)
            now = time.monotonic()
            # Planning writes no event of its own, but the counters tell of it; progress is told by this process's workers.
            tick = counted != known or _tick(service, caller.scope, ticked)
            known = counted
            if tick or now - said > ALIVE_S:
                yield b"event: tick\ndata: {}\n\n" if tick else b": alive\n\n"
                ticked = now
            said = now if events or tick or now - said > ALIVE_S else said
            if len(events) < BATCH:
                await _pause(service)
    finally:
        service.streams[token_id] -= 1
        if not service.streams[token_id]:
            del service.streams[token_id]


def _look(tx: Tx, caller: Caller, seq: int) -> tuple[bool, list[listing.Event], dict[Status, int]]:
    if not tokens.is_alive(tx, caller.token.token_id):
        return False, [], {}
    return True, listing.events_after(tx, caller.scope, seq, BATCH), lookup.counts(tx, caller.scope)


def _tick(service: Service, scope: Scope, since: float) -> bool:
    return service.ticks.get(scope, 0.0) > since


async def _pause(service: Service) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(service.closing.wait(), LOOK_S)


def _message(event: listing.Event, *, slim: bool) -> bytes:
    view = event_view(event)
    data = {"kind": view["kind"], "job_id": view["job_id"]} if slim else view
    return f"id: {event.seq}\ndata: {json.dumps(data)}\n\n".encode()
