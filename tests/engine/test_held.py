"""A lease's task is interrupted once, and only while it works: its cleaning up and its ending are never cut."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from longshore.depot import Depot
from longshore.domain.model import Lease
from longshore.domain.outcomes import Canceled, Released
from longshore.domain.requests import download_request
from longshore.domain.states import Status
from longshore.engine.errands import Held
from longshore.engine.worker import Worker
from tests.support.origin import Origin, Thing, stamped


def test_a_second_stop_does_not_cut_the_cleaning_up() -> None:
    lease: Any = None

    async def run() -> list[str]:
        held = Held(lease)
        seen: list[str] = []
        cleaning, go_on = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            held.working = True
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cleaning.set()
                await go_on.wait()
            seen.append("cleaned up")

        held.task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        held.stop(Canceled())
        await cleaning.wait()
        held.stop(Canceled())
        held.stop(Released())
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait([held.task])
        return seen

    assert asyncio.run(run()) == ["cleaned up"]


def test_a_job_that_is_stopped_before_its_first_step_is_settled(
    depot: Depot, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is canceled before it ran never runs: its lease would be renewed for ever, and the run never end."""
    start = Worker._start

    def stopped(self: Worker, lease: Lease) -> None:
        start(self, lease)
        self.cancel([lease.job_id])

    monkeypatch.setattr(Worker, "_start", stopped)
    url = origin.add("/a", Thing(stamped(1, 5_000)))
    (job_id,) = [planned.job_id for planned in depot.ledger.plan(depot.scope, [download_request(url)])]
    assert depot.run().canceled == 1
    assert depot.ledger.job(depot.scope, job_id).status is Status.CANCELED
