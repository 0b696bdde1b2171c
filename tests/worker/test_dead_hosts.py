"""Hosts that answer nothing: they hold a run for a bounded time, one probe speaks for all, and who comes back is asked again."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from longshore import failpoints
from longshore.config import load_settings
from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.domain.run_events import RunEvent
from longshore.ledger.operations import hosts
from longshore.worker.kinds.download.name_exists import hostname_of, is_unknown
from tests.support.big_list import silent_host
from tests.support.origin import Origin, Thing, stamped
from tests.worker.conftest import MakeDepot

PATIENCE_S = 60.0
QUICK = {"breaker_failures": 5, "breaker_cooldown_s": 1.0, "give_up_s": 2.0}


@contextmanager
def refusing(address: str = "127.0.0.9") -> Iterator[str]:
    """A port at which nobody listens and which nobody else gets."""
    with socket.socket() as taken:
        taken.bind((address, 0))
        yield f"{address}:{taken.getsockname()[1]}"


@pytest.fixture
def depot(where: str, make_depot: MakeDepot) -> Depot:
    """A depot on either engine."""
    flags = {"ledger": where} if where.startswith("postgres") else {}
    return make_depot(hosts=QUICK, retry={"base_s": 0.05, "cap_s": 0.5, "max_attempts": 50}, **flags)


def test_a_dead_host_is_given_up_and_the_others_go_on(depot: Depot, origin: Origin) -> None:
    with refusing() as dead:
        depot.add([download_request(f"http://{dead}/{n}") for n in range(120)])
        depot.add([download_request(origin.add(f"/{n}", Thing(stamped(n, 500)))) for n in range(20)])
        notes: list[RunEvent] = []
        began = time.monotonic()
        result = depot.run(max_wait_s=PATIENCE_S, on_note=notes.append)
        assert time.monotonic() - began < 20
    assert (result.completed, result.failed) == (20, 120)
    told = [note for note in notes if note.kind == "failed"]
    assert len({note.job_id for note in told}) == 120
    assert all(note.url and note.facts["reason"] == "connect" for note in told)
    jobs = [job for job in depot.jobs() if job.status is Status.FAILED]
    assert {job.reason for job in jobs} == {"connect"}
    assert any("has not answered since" in (job.message or "") and dead in (job.message or "") for job in jobs)
    assert sum(job.attempts for job in jobs) < 60  # a burst, then one probe per rest
    assert depot.status()[Status.FAILED] == 120


@pytest.mark.parametrize("jobs", [1, 6, 60])
def test_a_host_that_no_connection_reaches_is_given_up_in_time(where: str, make_depot: MakeDepot, jobs: int) -> None:
    """A first round, and one probe that speaks for all: not rounds of all jobs until twenty requests have failed."""
    flags = {"ledger": where} if where.startswith("postgres") else {}
    limits = {"breaker_cooldown_s": 2.0, "give_up_s": 4.0}
    depot = make_depot(hosts=limits, transfer={"connect_s": 2.0}, retry={"base_s": 0.05, "cap_s": 0.1}, **flags)
    with silent_host() as dead:
        depot.add([download_request(f"http://{dead}/{n}") for n in range(jobs)])
        began = time.monotonic()
        assert depot.run(max_wait_s=PATIENCE_S).failed == jobs
        assert time.monotonic() - began < 12
    found = depot.jobs()
    assert sum(job.attempts for job in found) <= min(jobs, 8) + 2  # a round at `hosts.concurrency`, and the probe
    assert all("has not answered since" in (job.message or "") for job in found)


def test_a_slow_commit_of_the_last_failures_is_counted(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop sees that no job is left while the failures are committed, but not yet told to it."""
    failing = threading.Event()

    def slow(name: str) -> None:
        if name == "abandon.before":
            failing.set()
        elif name == "ledger.committed" and failing.is_set():
            failing.clear()
            time.sleep(3)

    monkeypatch.setattr(failpoints, "hit", slow)
    with refusing() as dead:
        depot.add([download_request(f"http://{dead}/{n}") for n in range(20)])
        assert depot.run(max_wait_s=PATIENCE_S).failed == 20


def test_jobs_with_mirrors_go_on_to_them(depot: Depot, origin: Origin) -> None:
    with refusing() as dead:
        for n in range(60):
            good = origin.add(f"/{n}", Thing(stamped(n, 500)))
            depot.add([download_request(f"http://{dead}/{n}", mirrors=(good,))])
        assert depot.run(max_wait_s=PATIENCE_S).completed == 60
        assert max(origin.count(f"/{n}") for n in range(60)) == 1


def test_retry_brings_them_back_and_a_host_that_is_up_again_is_whole(depot: Depot) -> None:
    with refusing("127.0.0.8") as dead:
        urls = [f"http://{dead}/{n}" for n in range(30)]
        depot.add([download_request(url) for url in urls])
        assert depot.run(max_wait_s=PATIENCE_S).failed == 30
    address, port = dead.split(":")
    with Origin(address, port=int(port)) as alive:
        for n in range(30):
            alive.add(f"/{n}", Thing(stamped(n, 500)))
        assert len(depot.retry([job.job_id for job in depot.jobs()])) == 30
        assert depot.run(max_wait_s=PATIENCE_S).completed == 30
        assert max(alive.count(f"/{n}") for n in range(30)) == 1
    (host,) = [host for host in depot.ledger.read(hosts.hosts) if host.host == dead]
    assert host.failures == 0


def test_a_name_that_does_not_exist_is_definite(make_depot: MakeDepot) -> None:
    if not is_unknown("no-such-name.invalid"):
        pytest.skip("the resolver does not say that .invalid does not exist")
    depot = make_depot(retry={"base_s": 30.0})
    depot.add([download_request(f"http://no-such-name.invalid/{n}") for n in range(40)])
    began = time.monotonic()
    assert depot.run(max_wait_s=PATIENCE_S).failed == 40
    assert time.monotonic() - began < 15
    assert {(job.reason, job.message) for job in depot.jobs()} == {("dns", "no such name: no-such-name.invalid")}


@pytest.mark.parametrize(
    ("raised", "unknown"),
    [
        (socket.gaierror(socket.EAI_NONAME, "x"), True),
        (socket.gaierror(socket.EAI_AGAIN, "x"), False),
        (socket.gaierror(socket.EAI_FAIL, "x"), False),
        (UnicodeError("x"), True),
        (OSError("x"), False),
        (None, False),
    ],
)
def test_only_a_certain_answer_is_definite(
    monkeypatch: pytest.MonkeyPatch, raised: Exception | None, unknown: bool
) -> None:
    def answer(*_: object, **__: object) -> list[object]:
        if raised is not None:
            raise raised
        return []

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    assert is_unknown("x") == unknown


@pytest.mark.parametrize(
    ("host", "name"), [("a.example", "a.example"), ("a.example:80", "a.example"), ("[::1]:80", "::1"), ("[::1]", "::1")]
)
def test_a_host_without_its_port(host: str, name: str) -> None:
    assert hostname_of(host) == name


def test_never_means_never(make_depot: MakeDepot) -> None:
    depot = make_depot(hosts={**QUICK, "give_up_s": 0}, retry={"base_s": 0.05, "cap_s": 0.5, "max_attempts": 50})
    with refusing() as dead:
        depot.add([download_request(f"http://{dead}/{n}") for n in range(20)])
        result = depot.run(max_wait_s=4.0)
        assert result.left
        assert result.failed == 0


def test_the_setting_has_its_name() -> None:
    assert load_settings("x", environ={"LONGSHORE_HOSTS__GIVE_UP_S": "7.5"}).hosts.give_up_s == 7.5
