"""Requests that wait for a job's end. One poll per job serves all of them, and a wait ends when its client is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import Receive

from longshore.domain.kinds import TERMINAL
from longshore.domain.model import Job, Scope

STEP_S: Final = 0.1


@dataclass(slots=True)
class _Poll:
    task: asyncio.Task[Job]
    waiting: int = 0


class JobWaits:
    """The jobs that requests wait for."""

    def __init__(self, look: Callable[[Scope, str], Awaitable[Job]], closing: asyncio.Event) -> None:
        self._look, self._closing = look, closing
        self.polls: dict[tuple[Scope, str], _Poll] = {}

    async def wait(self, scope: Scope, job_id: str, wait_s: float, receive: Receive) -> Job:
        """Return a job when it has ended, or its last known state after the timeout or when the client is gone."""
        job = await self._look(scope, job_id)
        if wait_s <= 0 or self._enough(job):
            return job
        poll = self._joined(scope, job_id)
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({poll.task, gone}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            if poll.task.done():
                return poll.task.result()
            return job if gone.done() else await self._look(scope, job_id)
        finally:
            gone.cancel()
            self._left(scope, job_id, poll)

    def _joined(self, scope: Scope, job_id: str) -> _Poll:
        poll = self.polls.get((scope, job_id))
        if poll is None:
            poll = self.polls[scope, job_id] = _Poll(asyncio.create_task(self._until_enough(scope, job_id)))
        poll.waiting += 1
        return poll

    def _left(self, scope: Scope, job_id: str, poll: _Poll) -> None:
        poll.waiting -= 1
        if (poll.task.done() or not poll.waiting) and self.polls.get((scope, job_id)) is poll:
            del self.polls[scope, job_id]
        if not poll.waiting:
            poll.task.cancel()

    async def _until_enough(self, scope: Scope, job_id: str) -> Job:
        while True:
            await asyncio.sleep(STEP_S)
            job = await self._look(scope, job_id)
            if self._enough(job):
                return job

    def _enough(self, job: Job) -> bool:
        return job.status in TERMINAL or self._closing.is_set()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
