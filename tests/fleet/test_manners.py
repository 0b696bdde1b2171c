"""Politeness, budgets and fairness hold over all hosts of a fleet together."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from longshore.domain.kinds import Status
from longshore.domain.model import Scope
from longshore.ledger import Ledger
from longshore.ledger.queries.listing import JobFilter
from tests.fleet.conftest import MakeFleet
from tests.fleet.test_cut_off import SCOPE, body, plan
from tests.support.origin import Origin, Request, Thing, Wire, status
from tests.support.program import eventually

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1200)]


class Counter:
    """A thing that takes a moment and knows how many ask for it at once, and when each began."""

    def __init__(self, takes_s: float = 0.1) -> None:
        self._takes_s = takes_s
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0
        self.starts: list[float] = []

    @contextmanager
    def _inside(self) -> Iterator[None]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.starts.append(time.monotonic())
        try:
            yield
        finally:
            with self._lock:
                self._now -= 1

    def serving(self, thing: Thing) -> object:
        def behave(request: Request, wire: Wire) -> None:
            with self._inside():
                time.sleep(self._takes_s)
            thing(request, wire)

        return behave


def served(origin: Origin, counter: Counter, count: int, name: str = "x") -> dict[str, bytes]:
    things = {f"/{name}/{n}": Thing(body(n)) for n in range(count)}
    return {origin.add(path, counter.serving(thing)): thing.body for path, thing in things.items()}  # type: ignore[arg-type]


def test_a_hosts_concurrency_holds_over_the_fleet(make_fleet: MakeFleet, origin: Origin) -> None:
    fleet, counter = make_fleet(LONGSHORE_HOSTS__CONCURRENCY="3"), Counter()
    bodies = served(origin, counter, 60)
    plan(fleet, list(bodies))
    for _ in range(4):
        fleet.host().start()
    fleet.all_done(60)
    assert counter.most == 3
    for host in fleet.hosts:
        host.stop()
    fleet.everything_once(bodies)


def test_a_hosts_rate_holds_over_the_fleet(make_fleet: MakeFleet, origin: Origin) -> None:
    fleet, counter = make_fleet(LONGSHORE_HOSTS__RATE_PER_S="5"), Counter(0.0)
    bodies = served(origin, counter, 25)
    plan(fleet, list(bodies))
    for _ in range(3):
        fleet.host().start()
    fleet.all_done(25)
    starts = sorted(counter.starts)
    assert starts[-1] - starts[0] >= 24 / 5 - 0.5, "25 starts at 5 a second"
    assert all(later - first >= 0.9 for first, later in zip(starts, starts[7:], strict=False)), (
        "never 8 within a second"
    )


def test_a_hosts_rest_is_everybodys(make_fleet: MakeFleet, origin: Origin) -> None:
    """One worker is told Retry-After: 4; until then no worker asks that host, and another host is not held up."""
    fleet, counter = make_fleet(), Counter(0.0)
    tired = origin.add("/tired", status(429, b"later\n", **{"Retry-After": "4"}), Thing(body(1)))
    first = fleet.host().start()
    plan(fleet, [tired])
    eventually(lambda: origin.count("/tired") == 1, "the first asked")
    asked = time.monotonic()
    eventually(lambda: fleet.sql("SELECT 1 FROM hosts WHERE cooldown_until IS NOT NULL"), "the rest is written")
    for _ in range(2):
        fleet.host().start()
    bodies = served(origin, counter, 10)
    plan(fleet, list(bodies))
    with Origin("127.0.0.2") as other:
        elsewhere = other.add("/fine", Thing(body(99)))
        plan(fleet, [elsewhere])
        eventually(lambda: other.count("/fine") == 1, "another host is not held up")
        fleet.all_done(12)
    assert min(counter.starts) - asked >= 3.0
    assert first.process is not None


def test_a_budget_of_jobs_holds_over_the_fleet(make_fleet: MakeFleet, origin: Origin) -> None:
    fleet, counter, free = make_fleet(), Counter(), Counter()
    with Ledger.open(fleet.dsn) as ledger:
        ledger.set_budget("small", jobs=2)
    small, large = served(origin, counter, 30, "small"), served(origin, free, 30, "large")
    plan(fleet, list(small), Scope("small", "p"))
    plan(fleet, list(large), Scope("large", "p"))
    for _ in range(3):
        fleet.host().start()
    fleet.all_done(60)
    assert counter.most <= 2
    assert free.most > 2


def test_a_budget_of_bytes_holds_over_the_fleet(make_fleet: MakeFleet, origin: Origin) -> None:
    fleet, counter = make_fleet(), Counter(0.0)
    bodies = served(origin, counter, 40)
    allowed = sum(sorted(len(one) for one in bodies.values())[:20])
    with Ledger.open(fleet.dsn) as ledger:
        ledger.set_budget("default", bytes=allowed)
    plan(fleet, list(bodies))
    for _ in range(3):
        fleet.host().start()
    eventually(lambda: set(fleet.counts()) <= {"completed", "failed"}, "every job is over", 120)
    assert fleet.sql("SELECT coalesce(sum(byte_size), 0) FROM blobs")[0][0] <= allowed
    assert fleet.sql("SELECT DISTINCT error_code FROM jobs WHERE status = 'failed'") == [("quota_exceeded",)]
    assert fleet.counts()["completed"] >= 10
    with Ledger.open(fleet.dsn) as ledger:
        ledger.set_budget("default", bytes=0)
        ledger.retry(SCOPE, [job.job_id for job in ledger.jobs(SCOPE, JobFilter(status=Status.FAILED)).items])
    eventually(lambda: fleet.counts().get("completed", 0) == 40, "there is room again", 120)


def test_a_small_tenant_is_not_behind_a_large_one(make_fleet: MakeFleet, origin: Origin) -> None:
    fleet, crowd, few = make_fleet(LONGSHORE_HOSTS__CONCURRENCY="4"), Counter(), Counter()
    plan(fleet, list(served(origin, crowd, 200, "crowd")), Scope("crowd", "p"))
    for _ in range(3):
        fleet.host().start()
    eventually(lambda: len(crowd.starts) > 20, "the crowd is being served")
    plan(fleet, list(served(origin, few, 10, "few")), Scope("few", "p"))
    fleet.all_done(210, 180)
    late = [start for start in crowd.starts if start > max(few.starts)]
    assert len(late) > 60, "the ten were done long before the two hundred"


def test_every_worker_of_a_fleet_is_woken_by_new_work(make_fleet: MakeFleet, origin: Origin) -> None:
    """NOTIFY: a worker that waits claims new work without a poll in between."""
    fleet = make_fleet()
    host = fleet.host().start()
    bodies: dict[str, bytes] = {}
    for number in itertools.count():
        if number == 10:
            break
        url = origin.add(f"/{number}", Thing(body(number)))
        bodies[url] = body(number)
        plan(fleet, [url], SCOPE)
        fleet.all_done(number + 1)
    host.stop()
    fleet.everything_once(bodies)
