"""The event history as server-sent events; a client resumes with Last-Event-ID."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import Header, Query, Request
from starlette.responses import StreamingResponse

from longshore.domain.kinds import Status
from longshore.domain.model import Scope
from longshore.ledger.operations import tokens
from longshore.ledger.queries import history, lookup
from longshore.ledger.queries.throughput import receives_anything
from longshore.ledger.transaction import Tx
from longshore.web.api.common import Serving, router
from longshore.web.cursors import PATTERN
from longshore.web.queries import Seal, event_view
from longshore.web.security.auth import Caller, Reader
from longshore.web.service import Service

routes = router("events", 422)

BATCH = 500
LOOK_S = 0.4
DIGEST_S = 1.0
NAMED = 50  # jobs in one digest
ALIVE_S = 15.0
_CURSOR = re.compile(PATTERN)

Shown = Callable[[Sequence[history.Event], Seal], Iterator[bytes]]


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
        str | None,
        Query(max_length=20, pattern=PATTERN, description="start after this event; 0: at the first; absent: now"),
    ] = None,
    slim: Annotated[bool, Query(description="only id and kind")] = False,
    digest: Annotated[
        bool, Query(description="one message a second at most: which jobs changed, null for many")
    ] = False,
    last_event_id: Annotated[str | None, Header(max_length=64)] = None,
) -> StreamingResponse:
    """Stream the events of this tenant and project."""
    service.streams.admit(caller)
    start = last_event_id if last_event_id and _CURSOR.match(last_event_id) else after
    if start:
        seq = service.cursors.read(caller.scope, start)
    else:
        seq = await service.ledger.read_async(history.last_event, caller.scope)
    return StreamingResponse(
        _events(service, caller, seq, _digest if digest else _slim if slim else _whole),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


async def _events(service: Service, caller: Caller, seq: int, shown: Shown) -> AsyncIterator[bytes]:
    seal = partial(service.cursors.seal, caller.scope)
    said = ticked = time.monotonic()
    known = await service.ledger.read_async(lookup.counts, caller.scope)
    yield b"retry: 2000\n: welcome\n\n"
    while not service.closing.is_set():
        alive, events, counted, moving = await service.ledger.read_async(_look, caller, seq, transfers=shown is _digest)
        if not alive:
            return  # the token was revoked or expired: end the stream
        seq = max([seq, *(event.seq for event in events)])
        for message in shown(events, seal):
            yield message
        now = time.monotonic()
        # Planning writes no events, but it changes the counters; nor does progress, in this process or another.
        tick = counted != known or moving or _tick(service, caller.scope, ticked)
        known = counted
        if tick or now - said > ALIVE_S:
            yield b"event: tick\ndata: {}\n\n" if tick else b": alive\n\n"
            ticked = now
        said = now if events or tick or now - said > ALIVE_S else said
        if len(events) < BATCH:
            await _pause(service, DIGEST_S if shown is _digest else LOOK_S)


def _look(
    tx: Tx, caller: Caller, seq: int, *, transfers: bool
) -> tuple[bool, list[history.Event], dict[Status, int], bool]:
    if not tokens.is_alive(tx, caller.token.token_id):
        return False, [], {}, False
    moving = transfers and receives_anything(tx, caller.scope)
    return True, history.events_after(tx, caller.scope, seq, BATCH), lookup.counts(tx, caller.scope), moving


def _tick(service: Service, scope: Scope, since: float) -> bool:
    return service.ticks.get(scope, 0.0) > since


async def _pause(service: Service, pause_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(service.closing.wait(), pause_s)


def _whole(events: Sequence[history.Event], seal: Seal) -> Iterator[bytes]:
    for event in events:
        view = event_view(event, seal)
        yield _message(view["seq"], view)


def _slim(events: Sequence[history.Event], seal: Seal) -> Iterator[bytes]:
    for event in events:
        yield _message(seal(event.seq), {"kind": event.kind, "job_id": event.job_id})


def _digest(events: Sequence[history.Event], seal: Seal) -> Iterator[bytes]:
    if events:
        jobs = sorted({event.job_id for event in events if event.job_id})
        yield _message(seal(max(event.seq for event in events)), {"jobs": jobs if len(jobs) <= NAMED else None})


def _message(seq: str, data: Any) -> bytes:
    return f"id: {seq}\ndata: {json.dumps(data)}\n\n".encode()
