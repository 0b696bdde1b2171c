"""Leases in a worker's hands: interrupted once, never let go without an end, kept through a ledger that is away."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from longshore import compat, failpoints
from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.domain.model import Lease
from longshore.domain.outcomes import Canceled, Released, Reused
from longshore.errors import Unavailable
from longshore.ledger.operations.settling import settle
from longshore.ledger.records import Settled
from longshore.worker import settler
from longshore.worker.kinds.download.dedupe import StoredContent
from longshore.worker.kinds.download.handler import DownloadHandler
from longshore.worker.loop import Worker
from longshore.worker.run_types import RunningLease, RunOptions
from tests.support.origin import Origin, Thing, stamped


def test_a_second_stop_does_not_cut_the_cleaning_up() -> None:
    lease: Any = None

    async def run() -> list[str]:
        held = RunningLease(lease)
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


def planned(depot: Depot, origin: Origin, name: str = "/a") -> str:
    url = origin.add(name, Thing(stamped(1, 5_000)))
    return depot.ledger.plan(depot.scope, [download_request(url)])[0].job_id


def test_an_ending_that_is_refused_ends_the_attempt_as_a_fault(
    depot: Depot, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the lease would run out, the job be claimed again, and the same happen for ever."""

    async def acquire(_self: DownloadHandler, _lease: Lease) -> Reused:
        return Reused("no such job", "no such artifact", {})

    monkeypatch.setattr(DownloadHandler, "acquire", acquire)
    job_id = planned(depot, origin)
    assert depot.run().failed == 1
    job = depot.ledger.job(depot.scope, job_id)
    assert (job.status, job.reason) == (Status.FAILED, "internal_error")


def test_a_look_at_what_is_known_that_fails_costs_no_lease(
    depot: Depot, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_self: StoredContent, _leases: object) -> None:
        raise Unavailable("not now")

    monkeypatch.setattr(StoredContent, "prepare", away)
    planned(depot, origin)
    assert depot.run().completed == 1


def test_a_worker_outlives_a_ledger_that_is_away(depot: Depot, origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    real, looks = Worker._due, []

    async def due(self: Worker, options: RunOptions) -> int | None:
        looks.append(options)
        if len(looks) == 1:
            raise Unavailable("not now")
        self.drain()
        return await real(self, options)

    monkeypatch.setattr(Worker, "_due", due)
    depot.run(forever=True)
    assert len(looks) == 2
    looks.clear()
    with pytest.raises(Unavailable):
        depot.run()


def test_a_renewed_lease_gives_the_ledger_time_to_come_back(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """`until` of a lease is that of its claim: a long transfer has passed it, and was renewed all the while."""
    depot.ledger.plan(depot.scope, [download_request("http://127.0.0.1:1/a")])
    lease = compat.lease_next_job(depot.ledger, "worker")
    assert lease is not None
    old, real, tries = replace(lease, until=depot.ledger.now() - 1), settle, []

    def away(tx: Any, ended: Any) -> Any:
        tries.append(ended)
        if len(tries) == 1:
            raise Unavailable("not now")
        return real(tx, ended)

    monkeypatch.setattr(settler, "settle", away)

    async def run() -> Settled:
        return await settler.Settler(depot.ledger, 60.0).settle(old, Released())

    assert asyncio.run(run()).status is Status.PENDING


@pytest.mark.parametrize("place", ["settle.before", "settle.after"])
def test_an_ending_that_nobody_can_write_holds_nobody_for_ever(depot: Depot, origin: Origin, place: str) -> None:
    """Whatever goes wrong while endings are written, the worker hears of it, and the job ends once."""
    url = origin.add("/a", Thing(stamped(1, 5_000)))
    try:
        failpoints.arm(f"{place}=raise")
        depot.add([url])
        depot.run()
    finally:
        failpoints.arm("")
    (got,) = depot.get([url])
    assert got.ok
    assert len(depot.ledger.results(depot.scope, got.job_id)) == 1
