"""Mirrors and redirects over several hosts: every topology ends, each candidate is asked a bounded number of times."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from longshore.domain.kinds import Status
from longshore.errors import NotAUrl
from longshore.ledger.operations import hosts
from tests.support.origin import Origin, Thing, redirect, stamped, status
from tests.worker.conftest import MakeDepot

PATIENCE_S = 60.0


def most_asked(*origins: Origin) -> int:
    """Count the requests for the path that was asked most often."""
    counts: dict[tuple[int, str], int] = {}
    for number, origin in enumerate(origins):
        for request in origin.requests:
            counts[number, request.path] = counts.get((number, request.path), 0) + 1
    return max(counts.values(), default=0)


def all_asked(*origins: Origin) -> int:
    return sum(len(origin.requests) for origin in origins)


def ran(depot: Depot, requests: int) -> float:
    began = time.monotonic()
    result = depot.run(max_wait_s=PATIENCE_S)
    assert result.completed == requests, result
    assert time.monotonic() - began < PATIENCE_S
    return time.monotonic() - began


def ring(stack: ExitStack, depot: Depot, hosts: int, jobs: int, mirrors: int) -> list[Origin]:
    """Plan jobs whose URL is missing at one host and whose mirrors are at the following ones; the last one has it."""
    origins = [stack.enter_context(Origin(f"127.0.0.{2 + n}")) for n in range(hosts)]
    for n in range(jobs):
        at = [origins[(n + step) % hosts] for step in range(mirrors + 1)]
        missing = [origin.add(f"/missing/{n}/{step}", status(404)) for step, origin in enumerate(at[:-1])]
        good = at[-1].add(f"/pdf/{n}", Thing(stamped(n, 2_000)))
        depot.add([download_request(missing[0], mirrors=(*missing[1:], good))])
    return origins


def test_the_other_engine_walks_the_same_way(where: str, make_depot: MakeDepot) -> None:
    flags = {"ledger": where} if where.startswith("postgres") else {}
    depot = make_depot(hosts={"concurrency": 2}, **flags)
    with ExitStack() as stack:
        origins = ring(stack, depot, 3, 30, 2)
        ran(depot, 30)
        assert (all_asked(*origins), most_asked(*origins)) == (90, 1)


@pytest.mark.parametrize(("hosts", "mirrors", "limit"), [(2, 1, 8), (2, 1, 1), (3, 1, 8), (3, 2, 2), (4, 3, 1)])
def test_hosts_whose_mirrors_name_each_other_end(make_depot: MakeDepot, hosts: int, mirrors: int, limit: int) -> None:
    depot = make_depot(hosts={"concurrency": limit})
    with ExitStack() as stack:
        origins = ring(stack, depot, hosts, 60, mirrors)
        ran(depot, 60)
        assert all_asked(*origins) == 60 * (mirrors + 1)
        assert most_asked(*origins) == 1


def test_one_way_mirrors_ask_each_url_once(make_depot: MakeDepot) -> None:
    depot = make_depot()
    with Origin("127.0.0.2") as gone, Origin("127.0.0.3") as good:
        for n in range(150):
            url = gone.add(f"/{n}", status(404))
            depot.add([download_request(url, mirrors=(good.add(f"/{n}", Thing(stamped(n, 500))),))])
        ran(depot, 150)
        assert (all_asked(gone, good), most_asked(gone, good)) == (300, 1)


def test_all_definite_fails_at_once_with_the_first_reason(make_depot: MakeDepot) -> None:
    depot = make_depot()
    with Origin("127.0.0.2") as one, Origin("127.0.0.3") as two:
        url = one.add("/a", status(410))
        depot.add([download_request(url, mirrors=(two.add("/a", status(403)),))])
        assert depot.run(max_wait_s=PATIENCE_S).failed == 1
        (job,) = depot.jobs()
        assert (job.status, job.reason, job.attempts) == (Status.FAILED, "http_410", 1)
        assert all_asked(one, two) == 2


def test_the_next_attempt_asks_only_what_may_still_work(make_depot: MakeDepot) -> None:
    depot = make_depot(retry={"base_s": 0.01, "cap_s": 0.05, "max_attempts": 4})
    with Origin("127.0.0.2") as one, Origin("127.0.0.3") as two, Origin("127.0.0.4") as three:
        url = one.add("/a", status(404))
        shaky = two.add("/a", status(500), status(500), Thing(stamped(1, 900)))
        depot.add([download_request(url, mirrors=(shaky, three.add("/a", status(403))))])
        assert depot.run(max_wait_s=PATIENCE_S).completed == 1
        assert (one.count("/a"), two.count("/a"), three.count("/a")) == (1, 3, 1)


def test_attempts_are_bounded_with_mirrors(make_depot: MakeDepot) -> None:
    depot = make_depot(retry={"base_s": 0.01, "cap_s": 0.05, "max_attempts": 3})
    with Origin("127.0.0.2") as one, Origin("127.0.0.3") as two:
        url = one.add("/a", status(500))
        depot.add([download_request(url, mirrors=(two.add("/a", status(502)),))])
        assert depot.run(max_wait_s=PATIENCE_S).failed == 1
        (job,) = depot.jobs()
        assert (job.reason, job.attempts) == ("http_500", 3)
        assert (one.count("/a"), two.count("/a")) == (3, 3)


def test_a_stopped_worker_goes_on_at_the_next_candidate(make_depot: MakeDepot, tmp_path: Path) -> None:
    """What was committed is not asked again: the second host is full while the first run lasts."""
    with Origin("127.0.0.2") as one, Origin("127.0.0.3") as two:
        depot = make_depot()
        url = one.add("/a", status(404))
        mirror = two.add("/a", Thing(stamped(3, 900)))
        depot.add([download_request(url, mirrors=(mirror,))])
        depot.aio.runtime.ledger.write(hosts.set_host, mirror.split("/")[2], {"paused": True})
        result = depot.run(max_wait_s=0.5)
        assert result.left
        assert one.count("/a") == 1
        (job,) = depot.jobs()
        assert job.trail is not None
        assert job.request.host == mirror.split("/")[2]
        depot.aio.runtime.ledger.write(hosts.set_host, mirror.split("/")[2], {"paused": False})
        assert depot.run(max_wait_s=PATIENCE_S).completed == 1
        assert (one.count("/a"), two.count("/a")) == (1, 1)


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("length", [2, 3])
def test_chains_of_redirects_over_busy_hosts_end(make_depot: MakeDepot, limit: int, length: int) -> None:
    depot = make_depot(hosts={"concurrency": limit})
    with ExitStack() as stack:
        origins = [stack.enter_context(Origin(f"127.0.0.{2 + n}")) for n in range(length)]
        for n in range(24):
            url = origins[-1].add(f"/{n}", Thing(stamped(n, 3_000)))
            for origin in reversed(origins[:-1]):
                url = origin.add(f"/{n}", redirect(url))
            depot.add([download_request(url)])
        ran(depot, 24)
        assert most_asked(*origins) <= 2
        assert len(origins[-1].requests) == 24


def test_redirects_that_lead_round_and_round_are_bounded(make_depot: MakeDepot) -> None:
    """Each request is sent to another host, and all of them are paused: the rounds are counted, and the job ends."""
    depot = make_depot(retry={"base_s": 0.01, "cap_s": 0.05, "max_attempts": 2})
    with Origin("127.0.0.2") as first, ExitStack() as stack:
        targets = [stack.enter_context(Origin(f"127.0.0.{3 + n}")) for n in range(8)]
        urls = [target.add("/a", Thing(stamped(1, 900))) for target in targets]
        url = first.add("/a", *[redirect(target) for target in urls * 4])
        depot.add([download_request(url)])
        ledger = depot.aio.runtime.ledger
        # A host with a limit of 1 whose slot somebody else holds: nothing of the job may wait there for long.
        held = [download_request(target.add("/held", Thing(b"x"))) for target in targets]
        for target in urls:
            ledger.write(hosts.set_host, target.split("/")[2], {"concurrency": 1})
        depot.add(held)
        assert depot.run(max_wait_s=PATIENCE_S).left is False
        assert first.count("/a") <= 2 * 6


HOSTLESS = ("file:///etc/passwd", "mailto:x@y", "magnet:?xt=urn:btih:00", "data:text/plain,x", "urn:x", "about:blank")


@pytest.mark.parametrize("mirror", [*HOSTLESS, "javascript:1", "rsync://127.0.0.1/x", "sftp:///x", "gopher://h/1"])
def test_a_mirror_that_cannot_be_fetched_is_refused_at_the_door(mirror: str) -> None:
    with pytest.raises(NotAUrl, match="a mirror is a URL of http"):
        download_request("http://h/x", mirrors=[mirror])


@pytest.mark.parametrize("mirror", [*HOSTLESS, "rsync://127.0.0.1/x"])
def test_a_mirror_that_an_older_program_took_is_passed_over(depot: Depot, origin: Origin, mirror: str) -> None:
    good = origin.add("/good", Thing())
    request = download_request(origin.add("/x", status(404)), mirrors=[good])
    got = depot.get([replace(request, mirrors=(mirror, good))])[0]
    assert got.ok
    assert (origin.count("/x"), origin.count("/good")) == (1, 1)
