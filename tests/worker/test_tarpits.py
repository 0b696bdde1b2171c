"""Hosts that drip: they keep their own transfers waiting, and nobody else's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from longshore.depot import Depot
from longshore.domain.identity.requests import download_request
from longshore.domain.policy.transfer_slots import (
    FLOOR_BYTES_S,
    STARVED_S,
    STOP_AFTER_S,
    RunningTransfer,
    free_slots,
    is_slow,
    may_have_extra,
    to_stop,
)
from longshore.domain.run_events import RunEvent
from tests.support.origin import Origin, Thing, drip, stamped
from tests.worker.conftest import MakeDepot

PATIENCE_S = 60.0
SOON_S = 15.0  # "about 10 s", on a machine that others use


class Run:
    """A run in a thread."""

    def __init__(self, depot: Depot) -> None:
        self.notes: list[RunEvent] = []
        self.depot = depot
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        self.depot.run(on_note=self.notes.append)

    def completed(self, prefix: str) -> int:
        return sum(1 for note in list(self.notes) if note.kind == "completed" and (note.url or "").startswith(prefix))


@contextmanager
def running(depot: Depot) -> Iterator[Run]:
    run = Run(depot)
    try:
        yield run
    finally:
        depot.aio.drain()
        run.thread.join(PATIENCE_S)
        assert not run.thread.is_alive()


def wait(condition: object, limit_s: float) -> float:
    began = time.monotonic()
    while not condition():  # type: ignore[operator]
        assert time.monotonic() - began < limit_s, "waited too long"
        time.sleep(0.05)
    return time.monotonic() - began


@pytest.mark.parametrize(("tarpits", "late"), [(4, False), (40, False), (4, True)])
def test_tarpits_starve_nobody(make_depot: MakeDepot, tarpits: int, late: bool) -> None:
    """A good host's 20 files complete soon, whether they are planned with the others or after them."""
    depot = make_depot()
    with ExitStack() as stack:
        slow = drip(Thing(stamped(1, 1_000_000)), 10, 1.0)
        good = stack.enter_context(Origin("127.0.0.2"))
        origins = [stack.enter_context(Origin(f"127.0.1.{2 + n}")) for n in range(tarpits)]
        each = 8 if tarpits > 4 else 400
        for origin in origins:
            depot.add([download_request(origin.add(f"/{n}", slow)) for n in range(each)])
        files = [download_request(good.add(f"/{n}", Thing(stamped(n, 20_000)))) for n in range(20)]
        if not late:
            depot.add(files)
        with running(depot) as run:
            if late:
                wait(lambda: sum(len(origin.requests) for origin in origins) >= 32, PATIENCE_S)
                depot.add(files)
            wait(lambda: run.completed("http://127.0.0.2") == 20, SOON_S)
        assert all(good.count(f"/{n}") == 1 for n in range(20))
        assert sum(len(origin.requests) for origin in origins) < 400


def test_slow_but_honest_transfers_are_never_stopped_when_nobody_waits(make_depot: MakeDepot, origin: Origin) -> None:
    depot = make_depot(transfer={"concurrency": 4}, hosts={"concurrency": 4})
    for n in range(4):
        depot.add([download_request(origin.add(f"/{n}", drip(Thing(stamped(n, 3_500)), 500, 1.0)))])
    result = depot.run(max_wait_s=PATIENCE_S)
    assert (result.completed, result.retried) == (4, 0)
    assert all(origin.count(f"/{n}") == 1 for n in range(4))


def test_a_slow_candidate_gives_way_to_its_mirror(make_depot: MakeDepot) -> None:
    """Two places, many slow transfers and a good host that waits: what is stopped goes on at its mirror."""
    depot = make_depot(transfer={"concurrency": 2}, hosts={"concurrency": 8})
    with (
        Origin("127.0.0.2") as good,
        Origin("127.0.0.3") as tar,
        Origin("127.0.0.4") as mirror,
        Origin("127.0.0.5") as pit,
    ):
        slow = drip(Thing(stamped(1, 1_000_000)), 10, 1.0)
        for n in range(8):
            copy = mirror.add(f"/{n}", Thing(stamped(n, 5_000)))
            depot.add([download_request((tar, pit)[n % 2].add(f"/{n}", slow), mirrors=(copy,))])
        depot.add([download_request(good.add(f"/{n}", Thing(stamped(n, 5_000)))) for n in range(200)])
        with running(depot) as run:
            wait(lambda: run.completed("http://127.0.0.2") == 200, PATIENCE_S)
        assert all(good.count(f"/{n}") == 1 for n in range(200))
        assert max(tar.count(f"/{n}") for n in range(8)) <= 1
        assert max(mirror.count(f"/{n}") for n in range(8)) <= 1


@pytest.mark.parametrize(
    ("places", "taken", "slow", "left"),
    [(4, 0, 0, 4), (4, 4, 0, 0), (4, 4, 3, 3), (4, 4, 4, 4), (4, 8, 4, 0), (4, 8, 8, 0), (4, 6, 4, 2), (4, 5, 0, -1)],
)
def test_slow_transfers_do_not_count_up_to_a_bound(places: int, taken: int, slow: int, left: int) -> None:
    assert free_slots(places, taken, slow) == left


def test_who_gives_way() -> None:
    old, young, slower = (
        RunningTransfer(("old", 1), 50.0, STOP_AFTER_S),
        RunningTransfer(("young", 1), 0.0, STOP_AFTER_S - 0.1),
        RunningTransfer(("slower", 1), 5.0, STOP_AFTER_S + 1),
    )
    slow = [old, young, slower]
    assert to_stop(slow, free_slots=1, waiting=5) == []
    assert to_stop(slow, free_slots=0, waiting=0) == []
    assert to_stop(slow, free_slots=0, waiting=1) == [slower.key]
    assert to_stop(slow, free_slots=-3, waiting=9) == [slower.key, old.key]
    assert is_slow(int(FLOOR_BYTES_S * 2) - 1, 2.0)
    assert not is_slow(int(FLOOR_BYTES_S * 2), 2.0)


def test_hosts_just_above_the_floor_starve_nobody(make_depot: MakeDepot) -> None:
    """No speed lets a few hosts hold every slot: a host that has none gets one beyond the limit."""
    depot = make_depot(transfer={"concurrency": 4}, hosts={"concurrency": 4})
    with Origin("127.0.0.2") as good, Origin("127.0.1.2") as slow:
        steady = drip(Thing(stamped(1, 10_000_000)), 1_024, 0.25)
        depot.add([slow.add(f"/{n}", steady) for n in range(8)])
        with running(depot) as run:
            wait(lambda: len(slow.requests) >= 4, PATIENCE_S)
            depot.add([good.add(f"/{n}", Thing(stamped(n, 20_000))) for n in range(6)])
            wait(lambda: run.completed("http://127.0.0.2") == 6, 30.0)
        assert len(slow.requests) <= 8


@pytest.mark.parametrize(
    ("running_there", "waited_s", "taken", "extra"),
    [(0, STARVED_S, 4, True), (0, STARVED_S - 0.1, 4, False), (1, 60.0, 4, False), (0, 60.0, 8, False)],
)
def test_who_gets_a_slot_beyond_the_limit(running_there: int, waited_s: float, taken: int, *, extra: bool) -> None:
    assert may_have_extra(4, taken, running_there=running_there, waited_s=waited_s) is extra
