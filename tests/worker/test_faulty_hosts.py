"""Hosts that answer with nothing but faults: they hold a run for a bounded time, and every URL there is asked for."""

from __future__ import annotations

import time

import pytest

from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from longshore.domain.run_events import RunEvent
from longshore.ledger.operations import hosts
from longshore.ledger.operations.hosts import host_facts
from tests.support.liar_ftp import LiarFtp
from tests.support.origin import Origin, Thing, stamped, status
from tests.support.wire import Request, Wire
from tests.worker.conftest import MakeDepot

PATIENCE_S = 60.0
QUICK = {"breaker_failures": 5, "breaker_cooldown_s": 3.0, "give_up_s": 6.0}
MANY = 60


def garbage(_request: Request, wire: Wire) -> None:
    """Answer with what is no HTTP."""
    wire.send(b"garbage\r\n\r\n")
    wire.hangup()


FAULTS = {"http_500": status(500), "protocol_error": garbage}


@pytest.fixture
def depot(where: str, make_depot: MakeDepot) -> Depot:
    """A depot on either engine whose jobs would be tried for hours."""
    flags = {"ledger": where} if where.startswith("postgres") else {}
    return make_depot(hosts=QUICK, retry={"base_s": 3.0, "cap_s": 6.0, "max_attempts": 50}, **flags)


@pytest.mark.parametrize("reason", FAULTS)
def test_each_url_of_a_faulty_host_is_asked_for_and_the_run_ends(depot: Depot, origin: Origin, reason: str) -> None:
    depot.add([download_request(origin.add(f"/{n}", FAULTS[reason])) for n in range(MANY)])
    notes: list[RunEvent] = []
    began = time.monotonic()
    assert depot.run(max_wait_s=PATIENCE_S, on_note=notes.append).failed == MANY
    assert time.monotonic() - began < 20
    counts = [origin.count(f"/{n}") for n in range(MANY)]
    assert min(counts) == 1  # an answer speaks for its own URL only
    assert sum(counts) < 2 * MANY
    jobs = depot.jobs()
    assert {job.reason for job in jobs} == {reason}
    assert all("nothing but faults since 20" in (job.message or "") for job in jobs)
    assert len([note for note in notes if note.kind == "failed"]) == MANY
    waiting = [note for note in notes if note.kind == "waiting"]
    assert waiting
    assert {(note.facts["host"], note.facts["reason"]) for note in waiting} == {(origin.netloc, reason)}


def test_the_good_url_of_a_faulty_host_is_fetched(depot: Depot, origin: Origin) -> None:
    """Its answer makes the host whole, so that the others have one more time."""
    depot.add([download_request(origin.add(f"/{n}", status(500))) for n in range(MANY)])
    depot.add([download_request(origin.add("/good", Thing(stamped(1, 500))))])
    began = time.monotonic()
    result = depot.run(max_wait_s=PATIENCE_S)
    assert time.monotonic() - began < 35
    assert (result.completed, result.failed) == (1, MANY)
    assert origin.count("/good") == 1
    assert sum(origin.count(f"/{n}") for n in range(MANY)) < 6 * MANY


def test_a_faulty_host_that_recovers_is_whole_again(depot: Depot, origin: Origin) -> None:
    urls = [origin.add(f"/{n}", status(500), Thing(stamped(n, 500))) for n in range(20)]
    depot.add([download_request(url) for url in urls])
    assert depot.run(max_wait_s=PATIENCE_S).completed == 20
    (host,) = depot.ledger.read(hosts.hosts)
    assert host.failures == 0


def test_jobs_with_mirrors_leave_a_faulty_host(depot: Depot, origin: Origin) -> None:
    with Origin("127.0.0.3") as mirror:
        for n in range(20):
            good = mirror.add(f"/{n}", Thing(stamped(n, 500)))
            depot.add([download_request(origin.add(f"/{n}", status(500)), mirrors=(good,))])
        assert depot.run(max_wait_s=PATIENCE_S).completed == 20
        assert max(origin.count(f"/{n}") for n in range(20)) <= 2


def test_an_ftp_server_that_refuses_is_not_silent(make_depot: MakeDepot) -> None:
    with LiarFtp(b"", greeting="421 too many users") as server:
        depot = make_depot(retry={"base_s": 0.01, "cap_s": 0.05, "max_attempts": 2})
        depot.add([download_request(server.url())])
        assert depot.run(max_wait_s=PATIENCE_S).failed == 1
        (job,) = depot.jobs()
        assert job.reason == "connect" and "421 too many users" in (job.message or "")
        (facts,) = depot.ledger.read(host_facts, [host.host for host in depot.ledger.read(hosts.hosts)]).values()
        assert (facts.failures, facts.silent_since) == (2, None)
