"""Several jobs that want one URL at the same time: one transfer, and the others reuse its result."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.worker.kinds.download import url_turns
from tests.support.origin import Gate, Origin, Request, Thing, Wire, cut, drip, stamped, status
from tests.worker.conftest import MakeDepot

PATIENCE_S = 60.0
SMALL, LARGE = 20_000, 3_000_000


def works(url: str, count: int, **more: Any) -> list[Any]:
    """Requests of several works with the same file."""
    return [download_request(url, work_id=f"w{number}", artifact_id="pdf", **more) for number in range(count)]


def reuses(depot: Depot) -> list[str]:
    """Why each skipped job needed no transfer."""
    return [
        event.facts["why"] for job in depot.jobs() for event in depot.show(job.job_id).events if event.kind == "skipped"
    ]


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_one_request_for_many_jobs(make_depot: MakeDepot, origin: Origin, size: int, engine: str, where: str) -> None:
    depot = make_depot(ledger=where, transfer={"segments": 1})
    depot.add(works(origin.add("/a", Thing(stamped(1, size))), 6))
    result = depot.run(max_wait_s=PATIENCE_S)
    assert (result.completed, result.reused, result.failed) == (1, 5, 0)
    assert origin.count("/a") == 1
    assert reuses(depot) == ["same_transfer"] * 5
    assert len({job.results for job in depot.jobs()}) == 1


def test_a_long_transfer_holds_no_slot_of_the_others(
    make_depot: MakeDepot, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait go back to the queue; the host's slots are free for other URLs, and the end wakes them."""
    monkeypatch.setattr(url_turns, "PATIENCE_S", 0.05)
    gate = Gate(Thing(stamped(1, LARGE)), LARGE // 2)
    depot = make_depot(hosts={"concurrency": 2}, transfer={"segments": 1})
    depot.add(works(origin.add("/a", gate), 4))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(depot.run, max_wait_s=PATIENCE_S)
        assert gate.reached.wait(PATIENCE_S)
        depot.add([origin.add(f"/other/{number}", Thing(stamped(9, SMALL))) for number in range(5)])
        _wait_until(lambda: depot.status()["completed"] == 5)
        gate.open()
        result = running.result(PATIENCE_S)
    assert (result.completed, result.reused) == (6, 3)
    assert origin.count("/a") == 1


def _wait_until(there: Callable[[], bool]) -> None:
    done = threading.Event()
    for _ in range(3_000):
        if there():
            return
        done.wait(0.02)
    raise AssertionError("did not come")


def test_other_headers_are_another_transfer(make_depot: MakeDepot, origin: Origin) -> None:
    """Each caller gets the bytes that its own headers ask for."""
    mine, plain = Thing(stamped(2, SMALL), etag='"mine"'), Thing(stamped(1, SMALL), etag='"plain"')

    def by_caller(request: Request, wire: Wire) -> None:
        (mine if "x-who" in request.headers else plain)(request, wire)

    depot, url = make_depot(), origin.add("/a", by_caller)
    depot.add([*works(url, 3), *works(url, 3, headers=[("X-Who", "me")])])
    assert depot.run(max_wait_s=PATIENCE_S).failed == 0
    for job in depot.jobs():
        (result,) = depot.ledger.results(depot.scope, job.job_id)
        wanted = mine if job.request.headers else plain
        assert result.sha256 == hashlib.sha256(wanted.body).hexdigest()


def test_an_answer_that_varies_is_not_shared(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot()
    depot.add(works(origin.add("/a", Thing(stamped(1, SMALL), etag=None, extra={"Vary": "*"})), 3))
    assert depot.run(max_wait_s=PATIENCE_S).completed == 3
    assert origin.count("/a") == 3


def test_other_expectations_fetch_for_themselves(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot()
    url = origin.add("/a", Thing(stamped(1, SMALL)))
    depot.add([*works(url, 1), download_request(url, work_id="x", artifact_id="x", size_bytes=SMALL + 1)])
    result = depot.run(max_wait_s=PATIENCE_S)
    assert (result.completed, result.failed) == (1, 1)
    assert origin.count("/a") == 2


def test_the_first_ones_failure_lets_the_others_go_on(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot()
    depot.add(works(origin.add("/a", status(404), Thing(stamped(1, SMALL))), 4))
    result = depot.run(max_wait_s=PATIENCE_S)
    assert (result.completed + result.reused, result.failed) == (3, 1)
    gone = origin.add("/gone", status(404))
    depot.add(works(gone, 5))
    assert depot.run(max_wait_s=PATIENCE_S).failed == 5


def test_a_leader_that_is_cut_lets_the_others_go_on(make_depot: MakeDepot, origin: Origin) -> None:
    depot, thing = make_depot(), Thing(stamped(1, LARGE))
    depot.add(works(origin.add("/a", cut(thing, LARGE // 2), thing), 3))
    result = depot.run(max_wait_s=PATIENCE_S)
    assert (result.completed + result.reused, result.failed) == (3, 0)


def test_a_canceled_leader_lets_the_others_go_on(make_depot: MakeDepot, origin: Origin) -> None:
    gate, thing = Gate(Thing(stamped(1, LARGE)), 1_500_000), Thing(stamped(1, LARGE))
    depot = make_depot(transfer={"segments": 1})
    url = origin.add("/a", gate, thing)
    depot.add(works(url, 2))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(depot.run, max_wait_s=PATIENCE_S)
        assert gate.reached.wait(PATIENCE_S)
        _wait_until(lambda: any(job.stage == "STREAMING" for job in depot.jobs()))
        (leader,) = [job.job_id for job in depot.jobs() if job.stage == "STREAMING"]
        depot.cancel([leader])
        result = running.result(PATIENCE_S)
        gate.open()
    assert (result.canceled, result.completed) == (1, 1)


def test_two_processes_receive_one_body(make_depot: MakeDepot, origin: Origin, engine: str, where: str) -> None:
    """Two depots on one ledger and store, as two processes: the second stops when its body leaves memory, and waits."""
    sent: list[int] = []
    thing = Thing(stamped(1, LARGE))
    gate, slow = Gate(thing, LARGE // 2), drip(thing, 50_000, 0.02)

    def counting(request: Request, wire: Wire) -> None:
        sent.append(1)
        if len(sent) == 2:
            slow(request, wire)
        else:
            (gate if len(sent) == 1 else thing)(request, wire)

    url = origin.add("/a", counting)
    one = make_depot(ledger=where, transfer={"segments": 1, "concurrency": 1})
    two = make_depot(ledger=where, transfer={"segments": 1, "concurrency": 1})
    planned = one.ledger.plan(one.scope, works(url, 2))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(one.run, scope=one.scope, job_ids=[planned[0].job_id], max_wait_s=PATIENCE_S)
        assert gate.reached.wait(PATIENCE_S)
        _wait_until(lambda: one.ledger.job(one.scope, planned[0].job_id).stage == "STREAMING")
        second = pool.submit(two.run, scope=one.scope, job_ids=[planned[1].job_id], max_wait_s=PATIENCE_S)
        _wait_until(lambda: one.ledger.job(one.scope, planned[1].job_id).reason == "url_busy")
        gate.open()
        assert first.result(PATIENCE_S).completed == 1
        assert second.result(PATIENCE_S).reused == 1
    job = one.ledger.job(one.scope, planned[1].job_id)
    assert (job.status, job.attempts) == (Status.SKIPPED, 0)  # waiting is no failure
    whole = [request for request in origin.seen("/a") if "if-none-match" not in request.headers]
    assert len(whole) == 2  # one of them was stopped after its first bytes
